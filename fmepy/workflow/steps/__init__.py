"""The steps of a calibration, one a file, in the order in which they run."""
