"""Rows of scores with gaps under a factor model."""
