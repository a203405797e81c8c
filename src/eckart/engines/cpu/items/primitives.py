"""Columns predicted from columns, as part of ``CpuEngine``."""

from __future__ import annotations

from eckart.engines.cpu.later import later


class ItemPrimitives:
    """The family ``items`` on ``threads`` threads."""

    column_gram = later("items.gram", "column_gram")
    sparse_gram = later("items.gram", "sparse_gram")
    zero_diagonal_ridge = later("items.ridge", "zero_diagonal_ridge")
    nonnegative_columns = later("items.slim", "nonnegative_columns")
    row_products = later("items.gram", "row_products")
    best_products = later("items.gram", "best_products")
