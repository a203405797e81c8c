"""Ctrl-C at any call of the engine: the interrupt goes on where there is no answer yet, else the
model has the last whole step and says that it was interrupted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eckart.engines import engine_named
from eckart.trace import StopReason
from resumable_fits import FITS

MOMENTS = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28, 40, 75, 140, 260)
"""Calls of the engine at which it happens: each of the first, which make ready, and some of those
that take steps."""


def interrupted(at):
    """An engine whose call of this number is cut off; those that it makes inside count as well."""
    base = type(engine_named("cpu", 1))

    class Stops(base):
        calls = 0

        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            if (
                name.startswith("_")
                or not callable(found)
                or name in ("at_work", "n_threads", "expect")
            ):
                return found

            def call(*args, **named):
                Stops.calls += 1
                if Stops.calls == at:
                    raise KeyboardInterrupt
                return found(*args, **named)

            return call

    return Stops(1)


@pytest.mark.parametrize("name", FITS)
def test_an_interrupt_keeps_whole_steps_or_goes_on(name):
    make, data = FITS[name]
    x = data()
    for at in MOMENTS:
        model = make(engine=interrupted(at))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(x)
            except KeyboardInterrupt:
                assert "fit_" not in vars(model)
                continue
        if model.fit_.trace.reason is StopReason.INTERRUPTED:
            assert len(model.fit_.trace) > 0
        arrays, _ = model.fit_.factors.to_state()
        assert all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind == "f")
