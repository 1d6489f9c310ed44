"""The report of a calibration: `page` puts it together, `templates` holds its words, `findings` what they rest on."""
