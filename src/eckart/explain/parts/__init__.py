"""Non-negative factorization."""
