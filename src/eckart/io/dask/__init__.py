"""Reading of Dask collections: arrays, frames and bags become parts of a matrix; verbs answer
a collection with one. Dask is loaded when one comes."""
