"""Talk with a Dask cluster: which one, and tasks that are run until their values are there. Dask is
loaded when this is used."""
