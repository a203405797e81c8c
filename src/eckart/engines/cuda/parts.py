"""Half sweeps of non-negative factorization on a device."""

from __future__ import annotations


class DeviceParts:
    """Half sweeps of non-negative factorization."""
