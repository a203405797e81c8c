"""Item models on the CPU."""
