"""Partial sums of parts merged in a fixed tree: the order depends on the number of parts alone, so the same parts give the same bits, whoever made them."""

from __future__ import annotations

import copy
from typing import Any

FAN = 8
"""Neighbours that are merged at a time: few tasks, and no more than eight partial sums in one place."""


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
    """Neighbours merged from the left; the first may be changed by its own merge, so it is copied."""
    total = parts[0] if len(parts) == 1 else alone(parts[0])
    for part in parts[1:]:
        total = added(total, part)
    return total


class Tree:
    """Partial sums that come one after another, merged as soon as ``FAN`` neighbours of a level are there: the same sum as level by level.

    >>> tree = Tree()
    >>> for i in range(20):
    ...     tree.add(float(i))
    >>> tree.total()
    190.0
    """

    def __init__(self) -> None:
        self.levels: list[list[Any]] = []

    def add(self, part: Any, level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append([])
        self.levels[level].append(part)
        if len(self.levels[level]) == FAN:
            parts, self.levels[level] = self.levels[level], []
            self.add(folded(parts), level + 1)

    def total(self) -> Any:
        for level in range(len(self.levels)):
            left = self.levels[level]
            if left and any(self.levels[level + 1 :]):
                self.levels[level + 1].append(folded(left))
                self.levels[level] = []
            elif left:
                return folded(left)
        return None
