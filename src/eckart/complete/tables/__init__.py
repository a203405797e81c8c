"""Tables whose columns are of several kinds."""
