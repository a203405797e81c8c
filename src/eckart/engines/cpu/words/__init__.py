"""Pairs of words: counting, GloVe, skip-gram."""
