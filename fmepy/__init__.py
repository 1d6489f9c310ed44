"""fmepy calibrates dynamic models: run, compare, fit, screen, sample."""

__version__ = "0.1.0"
