"""The studio: a web page over a folder of data and models, for people who would rather look than
read."""
