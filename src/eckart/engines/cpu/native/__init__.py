"""Work on threads that never ask for the interpreter's lock: words that threads share, the thread pool
that waits for work, and products by the addresses of BLAS."""
