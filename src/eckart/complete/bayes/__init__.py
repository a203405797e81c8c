"""Bayesian factorization by Gibbs sampling."""
