"""Sweeps and chains of topic models."""
