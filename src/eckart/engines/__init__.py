"""Engines touch the entries; they never decide to stop, log or warn."""

from __future__ import annotations

from eckart.engines.choose import choose, engine_named, engine_names

__all__ = ["choose", "engine_named", "engine_names"]
