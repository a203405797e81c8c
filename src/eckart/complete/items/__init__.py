"""Item models: columns predicted from the other columns of a row."""
