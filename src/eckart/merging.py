"""Partial sums of parts merged in a fixed tree: the order depends on the number of parts alone, so
the same parts give the same bits, whoever made them."""

from __future__ import annotations

import copy
from typing import Any

FAN = 8
"""Neighbours that are merged at a time: few tasks, and no more than eight partial sums in one
place."""


def alone(value: Any) -> Any:
    """A record that may be changed in place without anybody else seeing it."""
    return copy.deepcopy(value) if hasattr(value, "merge") else value


def added(a: Any, b: Any) -> Any:
    """Two partial sums as one; a record of sums knows how."""
    if a is None or b is None:
        return a if b is None else b
    if hasattr(a, "merge"):
        return a.merge(b)
    return a + b


def folded(parts: list[Any]) -> Any:
    """Neighbours merged from the left; the first may be changed by its own merge, so it is
    copied."""
    total = parts[0] if len(parts) == 1 else alone(parts[0])
    for part in parts[1:]:
        total = added(total, part)
    return total


class Tree:
    """Partial sums that come one after another, merged in the order of ``folded`` over ``FAN``
    neighbours of a level: the same sum as level by level, with one partial sum held for each level.

    >>> tree = Tree()
    >>> for i in range(20):
    ...     tree.add(float(i))
    >>> tree.total()
    190.0
    """

    def __init__(self) -> None:
        self.levels: list[tuple[int, Any]] = []

    def add(self, part: Any, level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append((0, None))
        count, total = self.levels[level]
        self.levels[level] = (
            count + 1,
            part if count == 0 else added(alone(total) if count == 1 else total, part),
        )
        if count + 1 == FAN:
            whole, self.levels[level] = self.levels[level][1], (0, None)
            self.add(whole, level + 1)

    def total(self) -> Any:
        found: Any = None
        there = False
        for count, total in self.levels:
            if count and there:
                found = added(alone(total) if count == 1 else total, found)
            elif count:
                found, there = total, True
        return found
