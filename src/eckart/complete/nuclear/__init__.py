"""Completion by singular values: nuclear norm, hard rank, exact recovery."""
