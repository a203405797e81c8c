"""Stored entries of sparse and partly observed rows."""
