"""Factorization with a ridge by alternating least squares."""
