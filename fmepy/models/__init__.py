"""Models: what is run."""
