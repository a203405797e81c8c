"""Dense rows and thin matrices: BLAS on row blocks."""
