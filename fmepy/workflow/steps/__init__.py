"""The steps of a calibration: a step is a file here, and a line in `registry`."""
