"""Blocks of rows on a Dask cluster. Dask is loaded when this is used."""
