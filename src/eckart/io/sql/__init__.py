"""Data where they live: queries of databases as Arrow batches, and tables back in one
transaction."""
