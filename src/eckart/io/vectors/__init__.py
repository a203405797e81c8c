"""Files of word vectors."""
