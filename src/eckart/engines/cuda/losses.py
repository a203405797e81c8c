"""Losses at the stored entries on a device. Those whose formulas ask for more than arithmetic
(grades with thresholds), and entries with a steepness of their own, are the CPU engine's."""

from __future__ import annotations

import functools
from typing import Any

from eckart.engines.arrays.losses import ArrayLosses


def _or_on_cpu(body: Any) -> Any:
    """The primitive; that of the CPU engine where a formula is not written for the device."""

    @functools.wraps(body)
    def primitive(self: Any, x: Any, *args: Any, **named: Any) -> Any:
        if not {"row_steep", "column_steep"} & {n for n, a in named.items() if a is not None}:
            try:
                return body(self, x, *args, **named)
            except TypeError:
                pass
        return self.on_cpu(body.__name__, self.held(x), *args, **named)

    return primitive


class DeviceLosses(ArrayLosses):
    """The family ``losses``: ``linearised`` in the place where its answer is used."""

    on_cpu: Any

    linearised = _or_on_cpu(ArrayLosses.linearised)
    loss_sums = _or_on_cpu(ArrayLosses.loss_sums)
    shortened_rows = _or_on_cpu(ArrayLosses.shortened_rows)
    slice_rows = _or_on_cpu(ArrayLosses.slice_rows)

    def threshold_sums(self, *args: Any, **named: Any) -> Any:
        return self.on_cpu("threshold_sums", *args, **named)

    def augmented(self, *args: Any, **named: Any) -> Any:
        return self.on_cpu("augmented", *args, **named)
