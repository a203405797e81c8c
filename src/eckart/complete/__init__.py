"""From a few observed entries to the whole matrix: normalise, factorise, fold in, recommend,
evaluate."""
