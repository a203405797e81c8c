"""From ids to positions, and from positions to sparse rows."""
