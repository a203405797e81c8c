"""Rows under a Gaussian mixture on a device."""

from __future__ import annotations


class DeviceMixtures:
    """Rows under a Gaussian mixture."""
