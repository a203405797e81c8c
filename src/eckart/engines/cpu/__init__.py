"""The CPU engine: BLAS and numba over row blocks, the same bits for any number of threads."""
