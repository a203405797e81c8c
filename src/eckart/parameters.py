"""Parameters of estimators as data: the default, the rule and the words of the error stand beside
each other, once.

An estimator is a dataclass whose fields are its parameters. The generated constructor assigns and
does no more, as scikit-learn wants it; ``check`` holds every value against its rule when the
estimator is used::

    @dataclass(eq=False, repr=False)
    class Model(Estimator):
        n_components: int = param(2, whole(1))
        _: KW_ONLY
        tol: float = param(1e-4, number(0, above=True))
        solver: Literal["auto", "svd"] = param("auto")
"""

from __future__ import annotations

import ast
import functools
import numbers
import os
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import invalid


class Rule(NamedTuple):
    """What a parameter may be: the words for an error message, and the test."""

    wanted: str
    fits: Callable[[Any], bool]


COUNTABLE = 2**63
"""No machine counts so far: a larger int would end in an error of NumPy, or in none that can be
printed. Seeds may have any size."""

LARGEST = 1e150
"""Of numbers beyond this the square, or a product with the data, leaves the range of a float64.
They may be as small as they like: to many the smallest float means "never stop early", or "as good
as nothing"."""

LONGEST_NAME = 255
"""Bytes that a part of a file's name may have on the usual discs."""


def param(default: Any, rule: Rule | None = None) -> Any:
    """A field with a default and a rule. A ``Literal`` is its own rule; others without one are
    checked by the estimator, against other parameters or the data."""
    return field(default=default, metadata={"rule": rule})


def check(model: Any, *names: str) -> None:
    """Refuse the first parameter of a dataclass (of those named, else of all) that breaks its rule.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Model:
    ...     k: int = param(2, whole(1))
    >>> check(Model(3))
    >>> check(Model(0))
    Traceback (most recent call last):
    eckart.errors.InputError: k must be an int >= 1, got 0
    """
    for f in fields(model):
        rule = f.metadata.get("rule") or choices(str(f.type))
        if rule is None or (names and f.name not in names):
            continue
        value: Any = getattr(model, f.name)
        if not rule.fits(value):
            raise invalid(f.name, value, rule.wanted)
        if is_int(value) and abs(value) >= COUNTABLE and f.name != "random_state":
            raise invalid(f.name, value, f"{rule.wanted}, below 2**63")
        if (
            isinstance(value, (float, np.floating))
            and np.isfinite(value)
            and abs(float(value)) > LARGEST
        ):
            raise invalid(f.name, value, f"{rule.wanted}, up to {LARGEST:g} in size")


@functools.cache
def choices(words: str) -> Rule | None:
    """The rule that a ``Literal``, as it is written, states; None for other types.

    >>> choices("Literal['a', None]").wanted, choices("str | None")
    ("'a' or None", None)
    """
    return one_of(*ast.literal_eval(f"[{words[8:-1]}]")) if words.startswith("Literal[") else None


def whole(low: int, high: int | None = None) -> Rule:
    """An int in a range; True and False are not numbers.

    >>> whole(1).fits(2), whole(1).fits(True), whole(1).fits(2.0), whole(0, 3).wanted
    (True, False, False, 'an int from 0 to 3')
    """
    words = f"an int >= {low}" if high is None else f"an int from {low} to {high}"
    return Rule(words, lambda v: is_int(v) and v >= low and (high is None or v <= high))


def starts() -> Rule:
    """How many starts a fit tries. Each has a seed and an end of its own, which stay in memory, so
    their number has a limit far beyond what pays.

    >>> starts().wanted
    'an int from 1 to 100000'
    """
    return whole(1, 100_000)


def number(
    low: float | None = None,
    high: float | None = None,
    *,
    above: bool = False,
    below: bool = False,
    finite: bool = True,
) -> Rule:
    """A real number in a range; ``above`` and ``below`` leave the ends out.

    >>> number(0, above=True).wanted, number(0, 1).wanted, number(0, 1, below=True).wanted
    ('a number > 0', 'a number from 0 to 1', 'a number >= 0 and < 1')
    >>> number(0).fits(float("nan")), number(0).fits(np.float32(1)), number(0).fits("1")
    (False, True, False)
    """

    def fits(v: Any) -> bool:
        if isinstance(v, (bool, np.bool_)) or not isinstance(v, numbers.Real):
            return False
        try:
            size = float(v)
        except OverflowError:  # an int of more digits than a float can say
            return False
        if np.isnan(size) or (finite and np.isinf(size)):
            return False
        over = low is None or (size > low if above else size >= low)
        return over and (high is None or (size < high if below else size <= high))

    parts = [] if low is None else [f"{'>' if above else '>='} {low:g}"]
    parts += [] if high is None else [f"{'<' if below else '<='} {high:g}"]
    words = (
        f"a number from {low:g} to {high:g}"
        if low is not None and high is not None and not (above or below)
        else ""
    )
    return Rule(words or " ".join(["a number", " and ".join(parts)]).strip(), fits)


def one_of(*values: Any) -> Rule:
    """One of a few values.

    >>> one_of("a", "b", None).wanted
    "'a', 'b' or None"
    """
    said = [repr(v) for v in values]
    words = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"
    return Rule(words, lambda v: any(v is w or (type(v) is type(w) and v == w) for w in values))


def flag() -> Rule:
    """True or False."""
    return Rule("True or False", lambda v: isinstance(v, (bool, np.bool_)))


def either(*rules: Rule, wanted: str | None = None) -> Rule:
    """What fits one of several rules.

    >>> either(one_of("auto"), whole(1)).wanted
    "'auto' or an int >= 1"
    """
    return Rule(
        wanted or " or ".join(rule.wanted for rule in rules),
        lambda v: any(rule.fits(v) for rule in rules),
    )


def optional(rule: Rule) -> Rule:
    """None, or what fits the rule.

    >>> optional(whole(1)).wanted, optional(whole(1)).fits(None)
    ('None or an int >= 1', True)
    """
    return Rule(f"None or {rule.wanted}", lambda v: v is None or rule.fits(v))


def seed() -> Rule:
    """None, a seed, or one of NumPy's generators.

    >>> seed().fits(0), seed().fits(np.random.default_rng()), seed().fits(-1)
    (True, True, False)
    """
    kinds = (np.random.Generator, np.random.RandomState)
    return Rule(
        "None, an int >= 0, a Generator or a RandomState",
        lambda v: v is None or isinstance(v, kinds) or whole(0).fits(v),
    )


def file_name() -> Rule:
    """None, or the name of a file.

    >>> file_name().fits("state"), file_name().fits(5)
    (True, False)
    """
    return Rule("None or the name of a file", lambda v: v is None or is_file_name(v))


def is_file_name(v: Any) -> bool:
    """Whether a file can have this name, as far as the name alone says it.

    >>> is_file_name("state"), is_file_name("a\\0b"), is_file_name("a" * 300), is_file_name(3)
    (True, False, False, False)
    """
    if not isinstance(v, (str, os.PathLike)):
        return False
    try:
        name = os.fsencode(v)
    except UnicodeEncodeError:  # half of a character
        return False
    return b"\0" not in name and max(map(len, name.split(os.fsencode(os.sep)))) <= LONGEST_NAME


def is_int(v: Any) -> bool:
    """Whether v is a whole number by its type; True and False are not."""
    return isinstance(v, (int, np.integer)) and not isinstance(v, (bool, np.bool_))
