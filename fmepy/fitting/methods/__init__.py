"""Ways to minimise: one idea a file, and `registry`."""
