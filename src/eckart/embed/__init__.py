"""Embed: word and item vectors as matrix factorization."""
