"""Tables and triples in and out."""
