"""What happens along a run: segments, events, forcings, switches, tolerances."""
