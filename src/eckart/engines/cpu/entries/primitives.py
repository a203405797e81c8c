"""Low rank met at the stored entries, losses there and rows of several kinds, as part of
``CpuEngine``."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cpu.entries.losses import LossPrimitives
from eckart.engines.cpu.small import ONCE, later, or_arrays, or_arrays_on_factor
from eckart.engines.cpu.spread import by_rows

SCORES = 2**12
"""Scores up to which the best are found by arrays: 32 microseconds for a row of 3,000, by kernels
that are loaded 24 (one thread of an AMD EPYC)."""


def _of_a_block(*_: Any, gram: np.ndarray | None = None, **__: Any) -> bool:
    """Whether V^T V came, which ``BlocksEngine`` makes once for the kernels of all blocks."""
    return gram is not None


class EntryPrimitives(LossPrimitives, ArrayEntries):
    """The families ``entries`` and ``losses`` on ``threads`` threads."""

    # Time of arrays over that of kernels, 1,000,000 entries of 20,000 x 5,000, 16 factors, float64,
    # one thread of an AMD EPYC: sampled 11, residual 7.4, entry_times 1.3, entry_times_t 1.7,
    # evidence_rows 4.3, residual_gram 1.8, misfit_rows 4.6; pair_rows of 200,000 pairs 9.3,
    # top_columns of 2,000 rows 2.6. by_columns (.8) gains by threads alone.
    sampled = or_arrays(ArrayEntries)(later("entries.sampled", "sampled"))
    residual = or_arrays(ArrayEntries)(later("entries.sampled", "residual"))
    by_columns = or_arrays(ArrayEntries)(later("entries.sampled", "by_columns"))
    entry_times = or_arrays(ArrayEntries)(later("entries.sampled", "entry_times"))
    entry_times_t = or_arrays(ArrayEntries)(later("entries.sampled", "entry_times_t"))
    evidence_rows = or_arrays(ArrayEntries, unless=_of_a_block, larger=ONCE)(
        later("entries.evidence", "evidence_rows")
    )
    misfit_rows = or_arrays(ArrayEntries)(later("entries.evidence", "misfit_rows"))
    offset_times = by_rows(ArrayEntries, "offset_times")
    residual_gram = or_arrays(ArrayEntries, larger=ONCE)(
        later("entries.residual_gram", "residual_gram")
    )
    top_columns = or_arrays_on_factor(ArrayEntries, lambda u, v, *_, **__: len(u) * len(v), SCORES)(
        later("entries.top", "top_columns")
    )
    pair_rows = or_arrays_on_factor(ArrayEntries, lambda one, two, first, _: len(first))(
        later("entries.top", "pair_rows")
    )
