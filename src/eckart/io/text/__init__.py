"""Documents, words, vocabularies."""
