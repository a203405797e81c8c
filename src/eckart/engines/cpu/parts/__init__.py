"""Half sweeps of non-negative factorization."""
