"""Low rank met at the stored entries, losses there and rows of several kinds, as part of
``CpuEngine``."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cpu.later import later
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host


def _of_a_block(*_: Any, gram: np.ndarray | None = None, **__: Any) -> bool:
    """Whether V^T V came, which ``BlocksEngine`` makes once for the kernels of all blocks."""
    return gram is not None


class EntryPrimitives:
    """The families ``entries`` and ``losses`` on ``threads`` threads."""

    sampled = or_arrays(ArrayEntries)(later("entries.sampled", "sampled"))
    residual = or_arrays(ArrayEntries)(later("entries.sampled", "residual"))
    by_columns = later("entries.sampled", "by_columns")
    entry_times = or_arrays(ArrayEntries)(later("entries.sampled", "entry_times"))
    entry_times_t = later("entries.sampled", "entry_times_t")
    evidence_rows = or_arrays(ArrayEntries, unless=_of_a_block)(
        later("entries.evidence", "evidence_rows")
    )
    misfit_rows = or_arrays(ArrayEntries)(later("entries.evidence", "misfit_rows"))
    offset_times = or_arrays(ArrayEntries)(later("entries.evidence", "offset_times"))
    residual_gram = or_arrays(ArrayEntries)(later("entries.residual_gram", "residual_gram"))
    top_columns = later("entries.top", "top_columns")
    pair_rows = later("entries.pairs", "pair_rows")
    linearised = later("entries.losses", "linearised")
    loss_sums = later("entries.losses", "loss_sums")
    threshold_sums = later("entries.losses", "threshold_sums")
    shortened_rows = later("entries.losses", "shortened_rows")
    slice_rows = later("entries.losses", "slice_rows")
    _augmented = later("entries.losses", "augmented")
    normal: Any

    def augmented(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, noise: Any, **at: Any
    ) -> Host:
        drawn = self.normal(noise, (x.nnz, 1), np.float64) if isinstance(noise, tuple) else noise
        return self._augmented(x, loss, left, right, drawn, **at)
