"""Reading data in, writing models out."""
