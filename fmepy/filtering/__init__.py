"""The Kalman machine: arrays in, arrays out; it knows no cost."""
