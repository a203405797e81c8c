"""The engines that every contract test judges, listed once: an engine is added by one line."""

from __future__ import annotations

from eckart.engines import engine_named
from eckart.engines.blocks.engine import BlocksEngine

JUDGE = engine_named("plain")
ENGINES = {"cpu, 1 thread": engine_named("cpu", 1), "cpu, 3 threads": engine_named("cpu", 3)}
SLOW = {"three parts": BlocksEngine(1, cut=3)}
"""Judged by `make test-slow`; `tests/test_parts.py` fits every model on it in every run."""
