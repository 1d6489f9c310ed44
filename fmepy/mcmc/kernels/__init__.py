"""Ways to sample: one a file, and `registry`."""
