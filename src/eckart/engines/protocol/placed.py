"""What an engine holds: a placed matrix, and the only ways in and out of an engine.

A chapter never looks inside a placed matrix or a tall array (one with as many rows as the data has
rows, columns or entries). Small arrays (k x k, n x b, scalars) cross freely; tall ones cross by
``take`` and ``get``, at the start and at the end of a fit.

Errors met at a part of a matrix, as data: they cross processes, and the first in the order of
rows is the one that is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.errors import EckartError, InputError
from eckart.matrix import Matrix

Tall = Any
"""An array of the engine with N, m or z rows. Chapters may ask for ``shape`` and ``dtype``, slice
columns ``a[:, i:j]``, set columns of one that they took to those of another, and hand it back; no
more. Solvers on the tangent space of low rank (``optim.tangent``) also add, scale and join them by
NumPy's operators: arrays of an engine that are not NumPy's answer these, and whatever they cannot
answer is copied to the host."""


class GapsFound(EckartError):
    """A matrix that was taken for complete holds NaN; ``fit.with_gaps`` decides what that means,
    for every chapter."""

    def __init__(self, row: int, column: int):
        super().__init__(f"NaN at row {row}, column {column}")
        self.row, self.column = row, column


class Placed(Protocol):
    """A matrix inside an engine: cast, checked, laid out once. Labels travel along untouched."""

    kind: str
    """"dense" (all entries seen), "counts" (absent entries are zero) or "observed" (absent entries
    are unknown)."""
    rows: np.ndarray | None
    columns: np.ndarray | None

    @property
    def shape(self) -> tuple[int | None, int]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def nnz(self) -> int:
        """How many entries are stored."""
        ...

    @property
    def counts(self) -> np.ndarray:
        """Stored entries of each row, on the host."""
        ...

    @property
    def column_counts(self) -> np.ndarray:
        """Stored entries of each column, on the host."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether rows or entries have weights."""
        ...

    @property
    def T(self) -> Placed:
        """The columns' view, made once; its transpose is this again."""
        ...


class PlacingFamily(Protocol):
    """The doors of an engine."""

    def put(
        self,
        matrix: Matrix,
        weights: np.ndarray | None = None,
        entry_weights: np.ndarray | None = None,
    ) -> Any:
        """Place a matrix: cast, checked for NaN and infinity, laid out. ``weights`` has one number
        for each row, ``entry_weights`` one for each stored entry in row order. Dense rows are
        checked by the first pass that reads them, so that no pass is spent on looking alone: NaN
        there raises GapsFound, an infinity the error of ``refuse_bad``."""
        ...

    def take(self, array: np.ndarray | Tall, dtype: Any = None) -> Tall:
        """An array of the host, placed; or one of the engine, in another precision."""
        ...

    def get(self, array: Tall) -> np.ndarray:
        """An array of the engine, on the host."""
        ...

    def normal(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> Tall:
        """Standard normal numbers, drawn where they are used; the same for the same seed on every
        engine of the host (``rng.streams``) up to rounding. A GPU draws by its own generator: other
        numbers, the same ones on the same kind of GPU."""
        ...

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Tall:
        """Standard normal numbers for a start that nothing depends on: the next ones of this
        generator. A GPU draws its own, from a seed that it gives."""
        ...

    def together(self, x: Any, works: list[Callable[[Any], Any]]) -> list[Any]:
        """The answers of ``work(engine)`` for pieces of work on the placed matrix x that have
        nothing to wait for in one another: at the same time where that pays, each on an engine with
        its share of the threads."""
        ...

    def at_work(self) -> AbstractContextManager[None]:
        """Around a whole fit: threads and libraries are set as the engine wants them, and put back
        after."""
        ...


def first_bad(block: np.ndarray, first_row: int = 0) -> tuple[str, int, int] | None:
    """The first infinity or, where there is none, the first NaN of a block as (kind, row,
    column)."""
    for kind, found in (("inf", np.isinf(block)), ("nan", np.isnan(block))):
        if found.any():
            i, j = np.argwhere(found)[0]
            return kind, first_row + int(i), int(j)
    return None


def infinite(row: int, column: Any) -> InputError:
    """The one sentence for an entry that is infinite."""
    return InputError(
        f"X must hold finite numbers, got inf at row {row}, column {column}. Replace it or "
        "mark it NaN (not observed)."
    )


def refuse_bad(block: np.ndarray, first_row: int = 0) -> None:
    """Raise for the first infinity (an error) or NaN (a gap) in a block; nothing where all entries
    are finite."""
    bad = first_bad(block, first_row)
    if bad is None:
        return  # finite entries whose sum overflows: the chapter rescales
    kind, row, column = bad
    raise infinite(row, column) if kind == "inf" else GapsFound(row, column)


def refuse_bad_entries(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, kind: str
) -> None:
    """Raise for the first stored entry that is NaN or infinite."""
    with np.errstate(all="ignore"):
        # half the time of looking at each, and squares that overflow lead there
        if np.isfinite(np.dot(data, data)):
            return
    bad = np.flatnonzero(~np.isfinite(data))
    if not len(bad):
        return
    at = int(bad[0])
    row, column = int(np.searchsorted(indptr, at, side="right")) - 1, int(indices[at])
    if np.isinf(data[at]):
        raise infinite(row, column)
    if kind == "observed":
        raise InputError(
            f"X stores NaN at row {row}, column {column} of a partly observed matrix; "
            "leave that entry out"
        )
    raise InputError(
        f"X contains NaN at row {row}, column {column} of a sparse matrix, whose absent "
        "entries are zero; remove it, or read it with "
        "eckart.read(X, absent='unknown') if absent entries are unknown"
    )


class Place(NamedTuple):
    """Where a block stands: its number among the parts, its first row and its rows."""

    number: int
    first: int
    rows: int


class Refused(NamedTuple):
    """An error met at a block, as data: it crosses processes, and the first in the order of rows is
    the one that counts."""

    gaps: bool
    text: str
    row: int = 0
    column: int = 0

    def error(self) -> EckartError:
        return GapsFound(self.row, self.column) if self.gaps else InputError(self.text)


def first_refused(answers: list[Any]) -> Refused | None:
    """The first refusal; a missing entry counts where nothing worse was met, as in one piece."""
    bad = [answer for answer in answers if isinstance(answer, Refused)]
    return next((answer for answer in bad if not answer.gaps), bad[0] if bad else None)


def raise_first(answers: list[Any]) -> None:
    """Raise the first refusal among answers."""
    bad = first_refused(answers)
    if bad is not None:
        raise bad.error()


def whole_rows(text: str, at: Place) -> str:
    """The words of an error with the row of the whole matrix, and where that is.

    >>> whole_rows("X must hold finite numbers, got inf at row 7, column 2", Place(3, 1000, 50))
    'X must hold finite numbers, got inf at row 1007, column 2 (row 7 of partition 3)'
    """
    found = re.search(r"\brow (\d+)", text)
    if found is None:
        return text
    return (
        f"{text[: found.start()]}row {at.first + int(found[1])}{text[found.end() :]} (row "
        f"{found[1]} of partition {at.number})"
    )
