"""The table of candidates that ``tune`` returns, and its state in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np


class Trial(NamedTuple):
    """One candidate (``n_components`` is 0 for a model without a rank): its mean error, standard
    error (None where it cannot be known), the error of each fold, sweeps and seconds of all its
    fits; the weight of what was not observed, where several were tried."""

    n_components: int
    l2: float | None
    error: float
    standard_error: float | None
    errors: tuple[float, ...]
    sweeps: int
    seconds: float
    unobserved_weight: float | None = None

    @classmethod
    def resumed(cls, kept: Any) -> Trial:
        """From a list, as checkpoints keep it."""
        return cls._make([*kept[:4], tuple(kept[4]), *kept[5:]])


@dataclass(frozen=True, eq=False)
class Tuning:
    """What ``tune`` found: ``table`` (a Trial for each candidate), ``best`` (the chosen
    parameters), ``model`` (fitted to all entries with them).

    ``chosen`` is the chosen line of the table; ``metric`` names the error; ``tested`` and ``cold``
    count, for each fold, the rows with held-out entries and those of them without a training entry;
    ``stopped`` says why no more candidates were tried.
    """

    table: tuple[Trial, ...]
    chosen: int
    best: dict[str, Any]
    model: Any
    metric: str
    tested: tuple[int, ...]
    cold: tuple[int, ...]
    stopped: str

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns n_components, l2, error, standard_error, sweeps, seconds, unobserved_weight where
        it was tried, and fold_1 ... with the error of each."""
        names = [
            "n_components",
            "l2",
            "error",
            "standard_error",
            "sweeps",
            "seconds",
            *(["unobserved_weight"] if self._weighed else []),
        ]
        table = {
            n: np.array([np.nan if getattr(t, n) is None else getattr(t, n) for t in self.table])
            for n in names
        }
        return table | {
            f"fold_{f + 1}": np.array([t.errors[f] for t in self.table])
            for f in range(len(self.cold))
        }

    @property
    def _weighed(self) -> bool:
        return any(t.unobserved_weight is not None for t in self.table)

    def kept(self) -> dict[str, Any]:
        """All but the model, for a checkpoint; ``resumed`` is its inverse, with None as the
        model."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}

    @classmethod
    def resumed(cls, kept: Any) -> Tuning:
        kept_fields = dict(kept) | {name: tuple(kept[name]) for name in ("tested", "cold")}
        return cls(
            **kept_fields | {"table": tuple(map(Trial.resumed, kept["table"])), "model": None}
        )

    def __str__(self) -> str:
        ranked = any(t.n_components for t in self.table)
        weight = "unobserved " if self._weighed else ""
        lines = [
            f"  {'n_components' if ranked else '':>12} {'l2':>9} "
            f"{weight}{self.metric:>12} {'std. error':>11} {'sweeps':>7} {'seconds':>8}"
        ]
        for i, t in enumerate(self.table):
            ridge = "" if t.l2 is None else f"{t.l2:.4g}"
            ridge = f"{ridge:>9}" + (f" {t.unobserved_weight:>10.4g}" if self._weighed else "")
            spread = "" if t.standard_error is None else f"{t.standard_error:.5f}"
            lines.append(
                f"{'>' if i == self.chosen else ' '} {t.n_components or '':>12} {ridge} "
                f"{t.error:>12.5f} {spread:>11} {t.sweeps:>7} {t.seconds:>8.2f}"
            )
        count = f"{len(self.cold)} folds" if len(self.cold) > 1 else "one split"
        lines.append(
            f"{count}; {sum(self.cold)} of {sum(self.tested)} tested rows were cold; {self.stopped}"
        )
        return "\n".join(lines)
