"""The E step of mixtures."""
