"""Every primitive over parts of the rows: the same names, as maps and sums over blocks with an
inner engine."""
