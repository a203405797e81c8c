"""Mixtures by EM."""
