"""pLSA and LDA, and one judge for all topic models."""
