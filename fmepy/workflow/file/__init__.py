"""What a calibration file says: TOML with the lines of its keys, checked, and made into data, model and cost."""
