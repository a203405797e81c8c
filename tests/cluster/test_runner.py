"""Small parts of the runner."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("distributed", reason="Dask is not installed")
worker = pytest.importorskip("eckart.engines.dask.runner")


def test_large_shared_arrays_are_settled_once_a_call(monkeypatch):
    monkeypatch.setattr(worker, "LARGE", 64)
    raw = (
        np.arange(1 + 8 * 40, dtype=np.uint8)[1:].view(np.float64).reshape(10, 4)
    )  # across cache lines, as out of a socket
    shared = {
        "right": raw,
        "few": np.zeros(3),
        "rule": "any",
        "turned": np.asfortranarray(np.ones((9, 3))),
    }
    once, again = (worker.settled(shared) for _ in range(2))
    assert once is again
    assert once["right"].ctypes.data % 64 == 0
    np.testing.assert_array_equal(once["right"], raw)
    assert once["few"] is shared["few"]
    assert once["turned"] is shared["turned"]
    assert worker.settled(dict(shared)) is not once
