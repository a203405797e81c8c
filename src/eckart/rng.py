"""Randomness is passed in: one generator per fit, one independent stream per block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.errors import invalid

STREAM_ROWS = 4096
"""Rows of a tall array that share a stream of draws: engines may draw the streams at the same time,
or in different places."""


def generator(random_state: Any = None) -> np.random.Generator:
    """A NumPy generator from None (seeded by NumPy's global generator, so that ``np.random.seed``
    counts, as in scikit-learn), an int seed, a Generator or a RandomState.

    >>> int(generator(7).integers(100)) == int(generator(7).integers(100))
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng(np.random.randint(0, 2**31 - 1, size=4))  # noqa: NPY002 - the global generator is what is asked
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise invalid("random_state", random_state, "None, an int >= 0, a Generator or a RandomState")


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Standard normal numbers in the given precision; float32 takes the same draws as float64,
    rounded."""
    return rng.standard_normal(shape).astype(dtype, copy=False)


def stretch(seed: tuple[int, ...], first: int, last: int) -> np.ndarray:
    """Standard normal numbers first .. last of those that engines draw for a tall array of one
    column with this seed.

    >>> whole = np.concatenate([rng.standard_normal(part.stop - part.start) for part, rng in streams((7, 1), 9000)])
    >>> bool((stretch((7, 1), 4000, 8500) == whole[4000:8500]).all())
    True
    """
    a = first // STREAM_ROWS
    parts = [
        np.random.default_rng((*seed, b)).standard_normal(STREAM_ROWS)
        for b in range(a, -(-last // STREAM_ROWS))
    ]
    return (
        np.concatenate(parts)[first - a * STREAM_ROWS : last - a * STREAM_ROWS]
        if parts
        else np.zeros(0)
    )


def streams(seed: int | tuple[int, ...], rows: int) -> Iterator[tuple[slice, np.random.Generator]]:
    """Ranges of rows and the generator that draws for each, the same on every engine.

    >>> [(part.stop, float(rng.random().__round__(3))) for part, rng in streams((7, 1), 5000)] == [
    ...     (part.stop, float(rng.random().__round__(3))) for part, rng in streams((7, 1), 5000)]
    True
    """
    key = seed if isinstance(seed, tuple) else (seed,)
    for b, a in enumerate(range(0, rows, STREAM_ROWS)):
        yield slice(a, min(a + STREAM_ROWS, rows)), np.random.default_rng((*key, b))
