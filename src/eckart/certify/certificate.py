"""A certificate: named checks with their limits, what they add up to, and a sentence a person can
read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eckart.notebook import shown, table, verdict

BEWARE = "beware: "
"""Begins a note that belongs into the first line."""
UNKNOWN = float(np.finfo(np.float64).max)
"""An expected error of which nothing is known."""
ALIKE = 1e-6
"""Relative difference of errors below which two answers are the same but for roundings and the
tolerance of a solver."""


@dataclass(frozen=True)
class Check:
    """One measured number against its limit."""

    name: str
    value: float
    limit: float
    meaning: str

    @property
    def passed(self) -> bool:
        return bool(self.value <= self.limit)


def finite(value: float, what: str = "objective") -> Check:
    """Whether a number is one."""
    return Check(
        "finite", 0.0 if math.isfinite(value) else 1.0, 0.0, f"the {what} is a finite number"
    )


def never_rises(
    values: Sequence[float],
    limit: float,
    least: float = 0.0,
    when: str = "at a half sweep",
    scale: float | None = None,
) -> list[Check]:
    """A check of a history that has to fall; none where there is no step in it. A rise is relative
    to the size of the numbers whose rounding the values carry: the largest of them, or the
    objective at zero (``least``)."""
    if len(values) < 2:
        return []
    rise = max(max(b - a for a, b in itertools.pairwise(values)), 0.0) / (
        scale or max(least, *map(abs, values)) or 1.0
    )
    return [Check("never rises", rise, limit, f"largest rise of the objective {when}, relative")]


def roundings(dtype: Any) -> float:
    """Of a sum of squares in working precision, over a few dozen partial sums."""
    return 50 * float(np.finfo(dtype).eps)


@dataclass(frozen=True)
class Certificate:
    """Evidence about a fit, measured at the returned point.

    ``kind`` says what is proven: ``"global"`` (no better answer exists, up to ``gap``),
    ``"stationary"`` (no better answer nearby), or ``"statistical"``. ``facts`` holds what was
    measured; what was not measured is absent. ``holds`` is True when every check passed.

    >>> c = Certificate("least squares", "global", (Check("gap", 1e-9, 1e-6, "distance from the best"),), {"value": 2.0})
    >>> c.holds
    True
    """

    problem: str
    kind: str
    checks: tuple[Check, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return all(check.passed for check in self.checks)

    def with_errors(self, errors: dict[str, float], where: str) -> Certificate:
        """The same with the mean squared errors (or losses) of the model, of biases and of the mean
        on some entries; a model that is no better says so in the first line. ``expected`` is what
        the model would show on others, where these were fitted.

        >>> c = Certificate("least squares", "global", ())
        >>> str(c.with_errors({"model": 1.0, "mean": 1.0}, "5 entries")).splitlines()[0]
        'Certificate: HOLDS (global), but predicts no better than the mean'
        """
        plain: dict[str, float] = {
            name: errors[name] for name in ("biases", "no factors", "mean") if name in errors
        }
        judged = {name: errors.get(f"expected {name}", value) for name, value in errors.items()}
        judged["model"] = max(errors["model"], errors.get("expected", 0.0))
        facts = {
            f"error of {name} on {where}": value
            for name, value in [("model", errors["model"]), *plain.items()]
        }
        # about a standard error of a difference of so many squares, where it is no measured one
        alike = max(ALIKE, errors["entries"] ** -0.5) if "expected" in errors else ALIKE
        beaten = [
            name
            for name, value in plain.items()
            if value > 0 and judged["model"] >= judged[name] * (1 - alike)
        ]
        note = f"predicts no better than {'the mean' if 'mean' in beaten else ' and '.join(beaten)}"
        if errors.get("expected") == UNKNOWN:
            note = (
                "nothing shows that it predicts better than the mean: it has nearly as many free "
                "numbers as there are entries"
            )
        if errors.get("expected", UNKNOWN) != UNKNOWN:
            facts["error of model expected on others"] = errors["expected"]
        return replace(
            self,
            facts=self.facts | facts,
            notes=(*self.notes, f"{BEWARE}{note}") if beaten else self.notes,
        )

    @property
    def beware(self) -> str:
        """What makes an answer worth little though every check passed; empty where nothing does."""
        return "; ".join(note[len(BEWARE) :] for note in self.notes if note.startswith(BEWARE))

    @property
    def reason(self) -> str:
        """Why it does not hold, in words; empty when it does."""
        failed = [
            f"{c.name} is {c.value:.3g}, allowed {c.limit:.3g} ({c.meaning})"
            for c in self.checks
            if not c.passed
        ]
        return "; ".join(failed)

    def __getitem__(self, name: str) -> Any:
        """A fact, or the value of a check, by name."""
        if name in self.facts:
            return self.facts[name]
        for check in self.checks:
            if check.name == name:
                return check.value
        raise KeyError(
            f"{name!r} was not measured; there are {sorted(self.facts)} and "
            f"{[c.name for c in self.checks]}"
        )

    def __str__(self) -> str:
        lines = [
            f"Certificate: {'HOLDS' if self.holds else 'DOES NOT HOLD'} "
            f"({self.kind}){', but ' * bool(self.beware)}{self.beware}",
            f"  problem   {self.problem}",
        ]
        width = max([len(c.name) for c in self.checks] + [len(n) for n in self.facts] + [8])
        lines += [
            f"  {'ok  ' if c.passed else 'FAIL'}  {c.name:<{width}}  {c.value:.3g} <= "
            f"{c.limit:.3g}   {c.meaning}"
            for c in self.checks
        ]
        lines_by_name = {
            name: f"{value:.6g}" if isinstance(value, float) else str(value)
            for name, value in self.facts.items()
        }
        lines += [f"        {name:<{width}}  {value}" for name, value in lines_by_name.items()]
        lines += [f"  note      {note}" for note in self.notes]
        if not self.holds:
            lines.append(f"  reason    {self.reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title = verdict(
            self.holds,
            f"The certificate {'holds' if self.holds else 'does not hold'} "
            f"({self.kind}){', but ' * bool(self.beware)}{self.beware}.",
        )
        rows: list[tuple[Any, ...]] = [
            (
                verdict(c.passed, "ok" if c.passed else "fails"),
                c.name,
                float(c.value),
                float(c.limit),
                c.meaning,
            )
            for c in self.checks
        ]
        rows += [
            ("", name, value if isinstance(value, (int, float)) else str(value), "", "")
            for name, value in self.facts.items()
        ]
        notes = "".join(f"<p>{shown(note)}</p>" for note in self.notes)
        head = ("", "what", "measured", "allowed", "meaning")
        return f"<div><p>{title} {shown(self.problem)}</p>{table(head, rows)}{notes}</div>"

    def to_dict(self) -> dict[str, Any]:
        """All of the certificate as plain values."""
        return {
            "problem": self.problem,
            "kind": self.kind,
            "holds": self.holds,
            "checks": [
                {"name": c.name, "value": c.value, "limit": c.limit, "meaning": c.meaning}
                for c in self.checks
            ],
            "facts": self.facts,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Certificate:
        """The inverse of ``to_dict``.

        Parameters
        ----------
        d : what ``to_dict`` gave

        Returns
        -------
        Certificate
            The same evidence.
        """
        checks = tuple(
            Check(c["name"], float(c["value"]), float(c["limit"]), c["meaning"])
            for c in d["checks"]
        )
        return cls(d["problem"], d["kind"], checks, dict(d["facts"]), tuple(d["notes"]))
