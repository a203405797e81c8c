"""Randomness is passed in: one generator per fit, one independent stream per block."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import wrong


def generator(random_state: Any = None) -> np.random.Generator:
    """A NumPy generator from None (fresh entropy), an int seed, a Generator or a RandomState.

    >>> int(generator(7).integers(100)) == int(generator(7).integers(100))
    True
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise wrong("random_state", random_state, "None, an int >= 0, a Generator or a RandomState")


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Standard normal numbers in the given precision; float32 takes the same draws as float64, rounded."""
    return rng.standard_normal(shape).astype(dtype, copy=False)
