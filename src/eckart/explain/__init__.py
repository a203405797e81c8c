"""Explain: latent variables. Mixtures, topics, parts."""
