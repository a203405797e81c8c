"""What each column of a table is to the model: how its cells become scores, by which loss scores
become cells again, and why.

Scores have mean 0 and variance 1, so that no column drowns the others. A number is (a - offset) /
scale, with log(1 + a / unit) for counts and amounts. A level g of K has the scores B^T e_g /
sqrt(p_g), p the shares of the levels and B an orthonormal basis of what is orthogonal to sqrt(p): K
- 1 uncorrelated numbers (one for yes and no). Rare levels share theirs: a level of one row would
have the score of a spike, and with it that row a code of its own. Grades in an order have one
score, the mean of a standard normal variable between the quantiles of the grade. A date is its
number of seconds and, where it moves through days, weeks or years, sines and cosines beside it that
speak for other columns and are never imputed themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from eckart.decompositions import svd
from eckart.errors import FileError, InputError
from eckart.io.tables.mixed import Cells
from eckart.matrix import WIDELY
from eckart.terms import Loss, Ordered, loss_from, loss_named

CHOICES = {
    "number": (
        "squared",
        "huber",
        "poisson",
        "logistic",
        "ordered",
        "ordered_probit",
        "multinomial",
    ),
    "integer": (
        "squared",
        "huber",
        "poisson",
        "logistic",
        "ordered",
        "ordered_probit",
        "multinomial",
    ),
    "date": ("squared", "huber"),
    "boolean": ("logistic",),
    "category": ("multinomial", "ordered", "ordered_probit"),
    "ordered": ("ordered", "ordered_probit", "multinomial"),
}
"""The losses that a column of each kind may have, the usual one first."""
SKEWED = 2.0
"""Skewness of values from which they are counts or amounts: an exponential distribution has 2,
grades and ages less than 1. Fares of the Titanic have 4, and log(1 + fare) with a rate as its
answer has errors about 5 % below those of fares as plain numbers."""
UNITS = 10.0
"""Of an amount (above the least one) in its middle (the median above 0): log(1 + a / unit) is then
almost a logarithm, as the rates that answer want it, whatever the unit that the column came in. Of
222 skewed columns that are not whole numbers, filling by log(1 + a) made 1.8 times the squared
error (geometric mean). The unit is one step between values at least: log(1 + a) of small counts,
whatever they were multiplied by."""
RARE = 5
"""Cells of a level below which it has no scores of its own: what so few rows have in common is
mostly chance, and their level would speak louder than all other cells of the row (its score grows
with the root of 1 / share)."""
WIDE, MOST_AXES = 8, 16
"""Scores of a category from which on it keeps those axes alone along which other columns differ,
and of these at most so many."""
MOST_LEVELS = 200
"""Levels of a category: beyond, or where more than half of the cells differ, a column of text holds
names or ids."""
FEWEST_COUNTED = 10
"""Rows from which a column 1, 2, 3, ... counts them: in fewer rows numbers may stand in that order
by themselves."""
NAMED_IDS = re.compile(r"(?i:(?:^|[^a-z])(?:id|key))$|[a-z](?:Id|ID)$")
"""Names of ids: "id", "user_id", "PassengerId", "key"; not "paid"."""
CYCLES = {"day": 86400.0, "week": 7 * 86400.0, "year": 365.2425 * 86400.0}


@dataclass(frozen=True)
class Part:
    """A column in the model, with the scores ``first`` .. ``first + width`` of a row."""

    name: str
    kind: str
    loss: Loss
    first: int = 0
    offset: float = 0.0
    scale: float = 1.0
    unit: float = 1.0
    zero: float = 0.0
    """Of counts and amounts: their loss sees (a - zero) / unit."""
    spread: float = 1.0
    """The standard deviation of a column of numbers, in which errors are measured."""
    low: float = -np.inf
    high: float = np.inf
    cycle: str = ""
    """Which cycle of a date this is, "sin day" say; such a part is a helper and has no cells of its
    own."""
    scores: np.ndarray = field(default_factory=lambda: np.zeros((0, 1)))
    """Of each level (levels x width); empty for numbers."""
    link: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """Natural parameters of the loss are s = link [1, expected scores]; empty where expected scores
    are what is wanted (numbers)."""

    linear: float = 0.0
    """Share of linear regression on all other columns in the expected score of a column of numbers,
    the rest being the factor model's."""
    trust: float = 1.0
    """Share of what the factor model says in the answer; the rest is ``plain``, one answer for all
    rows: shares of the levels, or the mean."""
    plain: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def width(self) -> int:
        return self.scores.shape[1]

    @property
    def discrete(self) -> bool:
        return self.loss.discrete

    @property
    def linked(self) -> bool:
        """Whether a loss leads from expected scores to cells."""
        return self.discrete or self.loss.name == "poisson"

    @property
    def middle(self) -> float:
        """Of a column of numbers: from here its answers are measured in spreads."""
        return self.zero if self.linked else self.offset

    @property
    def levels(self) -> tuple[Any, ...]:
        """Of yes/no and categories; yes and no as they came, 0 and 1 where the column holds
        numbers."""
        if self.loss.name != "logistic":
            return getattr(self.loss, "levels", ())
        return {"integer": (0, 1), "number": (0.0, 1.0)}.get(self.kind, (False, True))

    @property
    def at(self) -> slice:
        return slice(self.first, self.first + self.width)

    def codes(self, cells: Cells) -> tuple[np.ndarray, list[Any]]:
        """Cells as the loss takes them, NaN for gaps; and the levels that the model does not know,
        whose cells are taken for gaps."""
        a = np.asarray(cells.values, np.float64)
        if not self.discrete:
            return (a - self.zero) / self.unit, []
        known = {level: float(code) for code, level in enumerate(self.levels)}
        names = cells.levels or ((False, True) if cells.kind == "boolean" else ())
        gap, at = np.isnan(a), a
        if not names:  # numbers
            met = np.unique(a[~gap])
            names, at = tuple(met.tolist()), np.searchsorted(met, a)
        at = np.where(gap, len(names), at).astype(np.intp)
        codes = np.append([known.get(name, np.nan) for name in names], np.nan)[at]
        lost = np.isnan(codes) & ~gap
        return codes, [names[g] for g in np.unique(at[lost])] if lost.any() else []

    def encode(self, a: np.ndarray) -> np.ndarray:
        """Scores (rows x width) of what ``codes`` gave; NaN for gaps."""
        if self.discrete:
            table = np.vstack([self.scores, np.full(self.width, np.nan)])
            return table[np.where(np.isnan(a), len(self.scores), a).astype(np.intp)]
        if self.cycle:
            which, length = self.cycle.split()
            turn = 2 * np.pi * a / CYCLES[length]
            a = np.sin(turn) if which == "sin" else np.cos(turn)
        elif self.loss.name == "poisson":
            # a new row may hold what no count can be: the nearest that can
            a = np.log1p(np.maximum(a, 0))
        return ((a - self.offset) / self.scale)[:, None]

    def natural(self, y: np.ndarray) -> np.ndarray:
        """Natural parameters of the loss at expected scores y (rows x width): rows, or rows x
        levels."""
        s = self.link[:, 0] + y @ self.link[:, 1:].T
        return s if self.loss.width > 1 else s[:, 0]

    def probabilities(self, y: np.ndarray) -> np.ndarray:
        """Of each level at expected scores y."""
        return self._trusted(self.loss.probabilities(self.natural(y)))

    def numbers(self, y: np.ndarray) -> np.ndarray:
        """Cells of a column of numbers at expected scores y, inside the range that was seen."""
        x = (
            self.zero + self.unit * self.loss.mean(self.natural(y))
            if self.linked
            else self.offset + self.scale * y[:, 0]
        )
        return self._trusted(np.clip(x, self.low, self.high))

    def _trusted(self, answer: np.ndarray) -> np.ndarray:
        return answer if self.trust == 1 else self.plain + self.trust * (answer - self.plain)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        own = {
            name: getattr(self, name)
            for name in (
                "name",
                "kind",
                "first",
                "offset",
                "scale",
                "unit",
                "zero",
                "spread",
                "low",
                "high",
                "cycle",
                "trust",
                "linear",
            )
        }
        parameters = {
            n: list(v) if isinstance(v, tuple) else v for n, v in self.loss.parameters().items()
        }
        arrays = {"scores": self.scores, "link": self.link, "plain": self.plain[None]}
        return arrays, own | {
            "loss": self.loss.name,
            "parameters": parameters,
        }

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], kept: Any) -> Part:
        """Refuses what no fit has written."""
        if (
            not isinstance(kept, dict)
            or not isinstance(kept.get("parameters"), dict)
            or not isinstance(kept.get("loss"), str)
        ):
            raise FileError("a column of a table is not described as this kind of model keeps it")
        loss = loss_from({"name": kept["loss"], **kept["parameters"]})
        numbers = {name: float(kept[name]) for name in ("offset", "scale", "low", "high")} | {
            name: float(kept.get(name, usual))
            for name, usual in (
                ("unit", 1.0),
                ("zero", 0.0),
                ("spread", 1.0),
                ("trust", 1.0),
                ("linear", 0.0),
            )
        }
        words = {name: kept[name] for name in ("name", "kind", "cycle")}
        scores, link, plain = arrays["scores"], arrays["link"], arrays["plain"].ravel()
        apt = (
            all(isinstance(word, str) for word in words.values())
            and words["kind"] in CHOICES
            and type(kept["first"]) is int
            and np.isfinite(
                [numbers[name] for name in ("offset", "scale", "unit", "zero", "spread")]
            ).all()
            and min(numbers["scale"], numbers["unit"], numbers["spread"]) > 0
            and not np.isnan([numbers["low"], numbers["high"]]).any()
            and words["cycle"] in {"", *(f"{f} {c}" for f in ("sin", "cos") for c in CYCLES)}
            and loss.name in CHOICES[words["kind"]]
            and _sound(loss)
            and scores.ndim == 2
            and link.ndim == 2
            and scores.dtype == np.float64
            and link.dtype == np.float64
            and plain.dtype == np.float64
            and 0 <= numbers["trust"] <= 1
            and 0 <= numbers["linear"] <= 1
        )
        if apt:
            part = cls(
                loss=loss,
                first=kept["first"],
                scores=scores,
                link=link,
                plain=plain,
                **words,
                **numbers,  # type: ignore[arg-type]
            )
            rows = len(part.levels) if part.discrete else 0
            widths = scores.shape[1]
            most = max(rows - 1, 1) if loss.name == "multinomial" else 1
            apt = (
                1 <= widths <= most
                and len(scores) == rows
                and link.shape == ((loss.width, widths + 1) if part.linked else (0, 0))
                and plain.shape == ((rows or 1) if part.trust < 1 else 0,)
            )
        if not apt:
            raise FileError(
                f"column {words['name']!r} holds no such values as this kind of model keeps"
            )
        return part


def _sound(loss: Loss) -> bool:
    """Whether levels and thresholds of a file fit together."""
    levels, cuts = getattr(loss, "levels", None), getattr(loss, "thresholds", None)
    if levels is None:
        delta = getattr(loss, "delta", 1.0)
        return isinstance(delta, (int, float)) and 0 < delta < np.inf
    apt = (
        len(levels) >= 2
        and len(set(levels)) == len(levels)
        and all(isinstance(v, (str, int, float)) for v in levels)
    )
    if cuts is None:
        return apt
    return (
        apt
        and len(cuts) == len(levels) - 1
        and bool(np.isfinite(cuts).all() and (np.diff(cuts) > 0).all())
    )


def choose_loss(
    cells: Cells, asked: str | None, weights: np.ndarray | None = None
) -> tuple[str, str]:
    """The name of the loss of a column, and why."""
    if asked is not None:
        if asked not in CHOICES[cells.kind]:
            raise InputError(
                f"losses[{cells.name!r}] must be one of {', '.join(CHOICES[cells.kind])} for a "
                f"column of type {cells.type_name}, got {asked!r}"
            )
        return asked, "asked for"
    if cells.kind in ("number", "integer"):
        a, w = _known(cells, weights)
        if ((a == 0) | (a == 1)).all() and min(np.count_nonzero(a), np.count_nonzero(a == 0)) > 1:
            return (
                "logistic",
                "0 and 1 alone: yes and no; losses={column: 'squared'} takes them for numbers",
            )
        deviation = spread_of(a, w) if len(a) else 0.0
        if deviation > 0:
            away = (a - np.average(a, weights=w)) / deviation
            skewness = float(np.average(away * away * away, weights=w))
            if skewness > SKEWED:
                return (
                    "poisson",
                    f"skewness {skewness:.1f}: counts or amounts, whose errors grow with them",
                )
        return "squared", "numbers"
    words = {
        "date": "dates, as numbers",
        "boolean": "yes and no",
        "category": "categories",
        "ordered": "ordered categories",
    }
    return CHOICES[cells.kind][0], words[cells.kind]


def parts_for(
    cells: Cells, asked: str | None, weights: np.ndarray | None = None
) -> tuple[list[Part], str]:
    """The parts of a column and the reason of its loss; no parts, and why, for a column that says
    nothing. ``weights``: how often each row counts."""
    a, w = _known(cells, weights)
    name, why = choose_loss(cells, asked, weights)
    if not len(a):
        return [], "no cell has a value"
    if (a == a[0]).all():
        return [], "every value is the same"
    if asked is None and (reason := _of_ids(cells, a)):
        return [], reason
    loss = loss_named(name)
    if name == "logistic" and not ((a == 0) | (a == 1)).all():
        raise InputError(
            f"losses[{cells.name!r}]='logistic' needs a column of 0 and 1 alone, got "
            f"{a[(a != 0) & (a != 1)][0]:g}"
        )
    if loss.discrete:
        met, codes = _levels_met(cells, a)
        if (
            asked is None
            and cells.kind == "category"
            and (len(met) > MOST_LEVELS or 2 * len(met) > len(a) + 2)
        ):
            return [], f"{len(met)} different values in {len(a)} cells: names or ids"
        if len(met) > MOST_LEVELS:
            raise InputError(
                f"column {cells.name!r} must have at most {MOST_LEVELS} levels, got {len(met)}. "
                "Leave it out, or give it another loss."
            )
        counts = np.bincount(codes, w)
        if name != "logistic":
            levels = (
                tuple(cells.levels[int(m)] for m in met) if cells.levels else tuple(met.tolist())
            )
            fitted = type(loss)(levels=tuple(range(len(met)))).fitted_to(codes, w)  # type: ignore[call-arg]
            loss = replace(fitted, levels=levels)  # type: ignore[call-arg]
        scores = (
            normal_scores(counts / counts.sum())
            if isinstance(loss, Ordered)
            else pooled_contrasts(counts)
        )
        return [Part(cells.name, cells.kind, loss, scores=scores)], why
    low, high = float(a.min()), float(a.max())
    size, (least, most) = max(-low, high), WIDELY[np.dtype(np.float64)]
    if size and not least <= size <= most:
        raise InputError(
            f"X must hold values of size {least:.0e} to {most:.0e}, got {size:.0e} in column "
            f"{cells.name!r}: their squares leave the range. Multiply the column by "
            f"1e{-int(np.floor(np.log10(size))):+03d} first."
        )
    if asked == "poisson" and low < 0:
        raise InputError(
            f"losses[{cells.name!r}]='poisson' needs a column of values >= 0, got {low:g}"
        )
    zero = low if name == "poisson" else 0.0
    unit = _unit(a - zero) if name == "poisson" else 1.0
    x = np.log1p((a - zero) / unit) if name == "poisson" else a
    placing = loss_named("squared") if name == "poisson" else loss
    place = placing.fitted_to(x, w).offset_and_scale(x, w)
    offset, scale = float(place.offset[0]), place.scale
    whole = loss.fitted_to((x - offset) / scale, w) if name == "huber" else loss
    parts = [
        Part(
            cells.name,
            cells.kind,
            whole,
            0,
            offset,
            scale,
            unit,
            zero,
            spread_of(a, w) or 1.0,
            low,
            high,
        )
    ]
    return parts + (_cycles(cells.name, a) if cells.kind == "date" else []), why


def _known(cells: Cells, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The values of a column that are there, and how often they count."""
    known = ~np.isnan(cells.values)
    return cells.values[known], None if weights is None else weights[known]


def spread_of(a: np.ndarray, weights: np.ndarray | None) -> float:
    """The standard deviation."""
    return (
        float(a.std())
        if weights is None
        else float(np.sqrt(np.average((a - np.average(a, weights=weights)) ** 2, weights=weights)))
    )


def _unit(a: np.ndarray) -> float:
    """What counts and amounts are measured in: the median of those above 0 is UNITS of it, or less
    where they have steps."""
    values = np.unique(a)
    return max(float(np.median(a[a > 0])) / UNITS, float(np.diff(values).min()))


def _of_ids(cells: Cells, a: np.ndarray) -> str:
    """Why whole numbers, all of them different, are ids and no measurements: they count the rows,
    or their name says so. "" where nothing does: years and other numbers that rise are numbers."""
    if (
        cells.kind not in ("number", "integer")
        or len(a) < FEWEST_COUNTED
        or (a != np.floor(a)).any()
        or len(np.unique(a)) < len(a)
    ):
        return ""
    but = "losses={column: 'squared'} takes them for numbers"
    if len(a) == len(cells.values) and a[0] in (0.0, 1.0) and (np.diff(a) == 1).all():
        return f"it counts the rows; {but}"
    return (
        f"whole numbers that are all different, in a column of that name: ids; {but}"
        if NAMED_IDS.search(cells.name)
        else ""
    )


def _levels_met(cells: Cells, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, and which of them each is; levels of a table are counted, numbers
    sorted."""
    if not cells.levels and cells.kind != "boolean":
        return np.unique(a, return_inverse=True)
    at = a.astype(np.intp)
    seen = np.bincount(at) > 0
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[at]


def contrasts(shares: np.ndarray) -> np.ndarray:
    """B^T e_g / sqrt(p_g) in row g: mean 0 and covariance I under the shares."""
    root = np.sqrt(shares)
    whole, _ = np.linalg.qr(np.column_stack([root, np.eye(len(shares))[:, 1:]]))
    basis = whole[:, 1:]
    if len(shares) == 2:
        basis = basis * np.sign(basis[1, 0])  # a higher score is the second level
    return basis / root[:, None]


def pooled_contrasts(counts: np.ndarray) -> np.ndarray:
    """Contrasts of levels, in which those of less than RARE cells are one level; where these are
    that few together, they have the scores 0 of no level."""
    rare = counts < RARE
    if np.count_nonzero(~rare) < 2 or not rare.any():
        return contrasts(counts / counts.sum())
    few = float(counts[rare].sum())
    groups = np.append(counts[~rare], few) if few >= RARE else counts[~rare]
    scores = contrasts(groups / groups.sum())
    out = np.zeros((len(counts), scores.shape[1]))
    out[~rare] = scores[: np.count_nonzero(~rare)]
    out[rare] = scores[-1] if few >= RARE else 0.0
    return out


def turned(
    parts: list[Part], columns: list[Cells], weights: np.ndarray | None = None
) -> list[Part]:
    """The same parts, those of many levels with few scores: the axes of their contrasts along which
    the means of the other columns differ most.

    A factor model takes scores for independent but for a few common directions. All contrasts of a
    category would be K - 1 columns that speak for the same cell with weights of their own; along
    the axes of the means, cov(contrasts, others) = U S V^T, its noise is a diagonal matrix, and U^T
    contrasts say all that a level can say of others to first order. Means of a level are drawn to 0
    as if RARE more of its cells had been seen there.
    """
    wide = [at for at, p in enumerate(parts) if p.width > WIDE]
    if not wide:
        return parts
    named = {cells.name: cells for cells in columns}
    codes = [p.codes(named[p.name])[0] for p in parts]
    others = [(p.name, np.nan_to_num(p.encode(a))) for p, a in zip(parts, codes) if p.width <= WIDE]
    out = list(parts)
    for at in wide:
        own = [y for name, y in others if name != parts[at].name]
        if not own:
            continue
        y, known = np.hstack(own), ~np.isnan(codes[at])
        level, times = (
            codes[at][known].astype(np.intp),
            np.ones(len(known)) if weights is None else weights,
        )
        counts = np.bincount(level, times[known], len(parts[at].scores))
        sums = np.zeros((len(counts), y.shape[1]))
        np.add.at(sums, level, y[known] * times[known, None])
        means = sums / (counts + RARE)[:, None]
        axes, _, _ = svd(
            parts[at].scores.T @ (means * counts[:, None] / counts.sum()), full_matrices=False
        )
        out[at] = replace(
            parts[at], scores=parts[at].scores @ axes[:, : max(1, min(MOST_AXES, axes.shape[1]))]
        )
    return out


def normal_scores(shares: np.ndarray) -> np.ndarray:
    """The mean of a standard normal variable between the quantiles of each grade, scaled to
    variance 1: (f(q_(g-1)) - f(q_g)) / p_g."""
    ends = ndtri(np.clip(np.concatenate([[0.0], np.cumsum(shares)]), 0, 1))
    density = np.exp(-0.5 * ends**2) / np.sqrt(2 * np.pi)
    scores = -np.diff(density) / shares
    return (scores / np.sqrt(shares @ scores**2))[:, None]


def _cycles(name: str, seconds: np.ndarray) -> list[Part]:
    """Sines and cosines of the cycles that dates pass through at least twice (a year: almost once,
    so that seasons are not taken for a trend)."""
    span, found = float(seconds.max() - seconds.min()), []
    for length, rounds in (("day", 2.0), ("week", 2.0), ("year", 0.8)):
        for which in ("sin", "cos"):
            part = Part(name, "date", loss_named("squared"), cycle=f"{which} {length}")
            turned = part.encode(seconds)[:, 0]
            if (
                span >= rounds * CYCLES[length] and turned.std() > 0.1
            ):  # dates without a time of day do not move through a day
                found.append(replace(part, offset=float(turned.mean()), scale=float(turned.std())))
    return found


def laid_out(parts: list[Part]) -> tuple[Part, ...]:
    """The same parts, each with the place of its scores."""
    ends = np.cumsum([0] + [part.width for part in parts])
    return tuple(replace(part, first=int(first)) for part, first in zip(parts, ends))
