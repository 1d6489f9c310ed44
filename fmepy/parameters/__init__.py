"""What theta is: names, start, bounds, scales."""
