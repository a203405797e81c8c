"""Evidence: what was minimised, how far from optimal it can be, and why we know."""
