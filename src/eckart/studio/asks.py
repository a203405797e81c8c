"""A question of the page: its fields, each taken by name and kind, and refused by name where it is
of another."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eckart.cli.shell import plain
from eckart.serve.bodies import JSON, _object, to_json
from eckart.serve.problems import Problem

MOST = 1000
"""Items of a list that one question may ask for."""


@dataclass(frozen=True)
class Ask:
    """``given`` are the fields of the address or of the JSON body; ``words`` those that an address
    repeats."""

    given: Mapping[str, Any]
    words: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of_query(cls, pairs: list[tuple[str, str]]) -> Ask:
        several: dict[str, list[str]] = {}
        for name, value in pairs:
            several.setdefault(name, []).append(value)
        return cls({name: values[-1] for name, values in several.items()}, several)

    @classmethod
    def of_body(cls, kind: str, body: bytes) -> Ask:
        if kind.partition(";")[0].strip().lower() != JSON:
            raise Problem(415, f"content-type must be {JSON}, got {kind[:80]!r}")
        return cls(_object(body))

    def raw(self, name: str) -> Any:
        return self.given.get(name)

    def text(self, name: str, usual: str | None = None) -> str | None:
        value = self.given.get(name)
        if value is None or value == "":
            return usual
        if not isinstance(value, str) or len(value) > 10_000:
            raise Problem(422, f"{name} must be text, got {str(value)[:80]!r}")
        return value

    def id(self, name: str) -> Any:
        value = self.given.get(name)
        if value is None or value == "":
            raise Problem(422, f"{name} must be an id, got none")
        return value

    def whole(self, name: str, usual: int | None, low: int = 0, high: int = 2**53) -> int | None:
        value = self.given.get(name)
        if value is None or value == "":
            return usual
        digits = (
            isinstance(value, str)
            and value.lstrip("-").isascii()
            and value.lstrip("-").isdigit()
            and len(value) < 18
        )
        found = int(value) if digits else value
        if type(found) is not int or not low <= found <= high:
            raise Problem(
                422,
                f"{name} must be a whole number of {low:,} to {high:,}, got {str(value)[:80]!r}",
            )
        return found

    def count(self, name: str = "n", usual: int = 10, most: int = MOST) -> int:
        found = self.whole(name, usual, 1, most)
        assert found is not None
        return found

    def place(self, name: str, usual: int | None = None) -> int:
        """A whole number that must come, unless there is a usual one."""
        found = self.whole(name, usual)
        if found is None:
            raise Problem(422, f"{name} must be a whole number, got none")
        return found

    def number(
        self, name: str, usual: float | None, low: float = -math.inf, high: float = math.inf
    ) -> float:
        value = self.given.get(name)
        value = usual if value is None or value == "" else value
        try:
            found = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not (math.isfinite(found) and low <= found <= high):
            raise Problem(
                422, f"{name} must be a number{_between(low, high)}, got {str(value)[:80]!r}"
            )
        return found

    def flag(self, name: str) -> bool:
        return self.given.get(name) in (True, "1", "true")

    def listed(self, name: str) -> list[Any]:
        value = self.words.get(name) or self.given.get(name)
        if not isinstance(value, list) or not value:
            raise Problem(422, f"{name} must be a list, got {str(value)[:80]!r}")
        return value


def _between(low: float, high: float) -> str:
    return (
        ""
        if math.isinf(low)
        else f" of {low:g} to {high:g}"
        if not math.isinf(high)
        else f" of {low:g} or more"
    )


@dataclass(frozen=True)
class Answer:
    """Bytes with their type, or blocks of them."""

    content: Any
    kind: str = JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200) -> Answer:
    """What is no finite number becomes null."""
    try:
        return Answer(to_json(value), JSON, status)
    except ValueError:
        return Answer(to_json(plain(value)), JSON, status)


def numbers(about: dict[str, Any], content: bytes) -> Answer:
    """Raw numbers with what they are in a header."""
    from eckart.studio.maps import header

    return Answer(content, "application/octet-stream", 200, header(about))


def events_line(kind: str, value: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(plain(value), ensure_ascii=False)}\n\n".encode()
