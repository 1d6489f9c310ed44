"""Engines: how equations or callables become numbers."""
