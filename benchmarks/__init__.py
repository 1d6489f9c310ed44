"""How fast the work of fmepy is, against peers in the same run: ``make bench``, or ``python -m benchmarks``."""
