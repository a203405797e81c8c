"""Columns predicted from columns, as part of ``CpuEngine``."""

from __future__ import annotations

from eckart.engines.arrays.items import ArrayItems
from eckart.engines.cpu.small import later, or_arrays, or_arrays_on_factor

COLUMNS = 2**18
"""Numbers of a Gram matrix up to which coordinate descent goes by arrays: 512 columns."""


class ItemPrimitives(ArrayItems):
    """The family ``items`` on ``threads`` threads."""

    # Time of arrays over that of kernels, 200,000 entries of 20,000 x 1,000, float32, one thread of
    # an AMD EPYC: column_gram 4.3; best_products of 2,000 rows 2.0.
    column_gram = or_arrays(ArrayItems)(later("items.gram", "column_gram"))
    nonnegative_columns = or_arrays_on_factor(ArrayItems, few=COLUMNS)(
        later("items.slim", "nonnegative_columns")
    )
    best_products = or_arrays_on_factor(ArrayItems, lambda x, rows, w, n, *_, **__: len(rows) * n)(
        later("items.gram", "best_products")
    )
