"""Costs: a model held against data."""
