"""Ridge problems of rows, as part of ``CpuEngine``; numba is loaded when the first of them is
called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cpu.small import later, or_arrays
from eckart.engines.host import Host
from eckart.engines.protocol import RidgeRule

PRODUCTS = 96
"""Products of two factors at stored entries that go with each number of a small matrix: 10,000
ratings and 17 factors, 30,000 and 10. There a fit by arrays takes .1 s longer than by kernels that
are loaded, which takes .5 s (one thread of an AMD EPYC)."""


def _for_kernels(engine: Any, x: Host, right: np.ndarray, rule: RidgeRule, **more: Any) -> bool:
    """Whether a small matrix asks for more work than that: with many factors, in every one of some
    hundred draws, or coordinate by coordinate; or whether it is a block of larger data, whose
    factors come in another basis (``turned_once``)."""
    if more.get("turned") is not None:
        return True
    # 10,000 ratings: 2.3 s by kernels, 5.4 by arrays for the default draws of BayesianMF
    if rule.nonnegative or more.get("noise") is not None:
        return engine.small < float("inf")
    return x.nnz * right.shape[1] ** 2 > PRODUCTS * engine.small


class RidgePrimitives(ArrayEntries):
    """The family ``ridge`` on ``threads`` threads."""

    threads: int

    ridge_rows = or_arrays(ArrayEntries, unless=_for_kernels)(later("ridge.schedule", "ridge_rows"))
    bias_rows = or_arrays(ArrayEntries)(later("ridge.schedule", "bias_rows"))
