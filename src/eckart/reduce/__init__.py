"""From many numbers to few: PCA, projections, linear autoencoders."""
