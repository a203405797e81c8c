"""Rows that are time series."""
