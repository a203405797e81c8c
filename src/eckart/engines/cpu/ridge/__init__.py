"""One small ridge problem for every row."""
