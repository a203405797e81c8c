"""Arguments of verbs, held to what is written beside them: a flag is True or False, an int is an
int, a text is a text.

A verb of a model, or a public function, says ``n: int = 10`` or ``by: str = "size"``; whoever calls
it with something else learns so in one line, from here, instead of from whatever NumPy or Python
meets first. Annotations of other kinds (``Any``, arrays) are the verb's own matter, and so are
ranges.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from eckart.errors import InputTypeError, invalid, written
from eckart.parameters import COUNTABLE, Rule, either, flag, is_int, number, one_of

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

KINDS: dict[str, Rule] = {
    "bool": flag(),
    "int": Rule("an int", lambda v: is_int(v) and abs(v) < COUNTABLE),
    "float": number(finite=False),
    "str": Rule("a text", lambda v: isinstance(v, str)),
    "None": one_of(None),
}


def _several(one: str, wanted: str) -> Rule:
    fits = KINDS[one].fits
    return Rule(
        wanted,
        lambda v: (
            (isinstance(v, (list, tuple, range)) or (isinstance(v, np.ndarray) and v.ndim == 1))
            and all(map(fits, v))
        ),
    )


KINDS |= {
    "Sequence[int]": _several("int", "a list of ints"),
    "Sequence[float]": _several("float", "a list of numbers"),
    "Sequence[str]": _several("str", "a list of texts"),
    "tuple[str, ...]": _several("str", "a tuple of texts"),
    "list[str]": _several("str", "a list of texts"),
}


def rule_of(annotation: Any) -> Rule | None:
    """The rule that an annotation states, or None where it states none.

    >>> rule_of("int | None").wanted, rule_of("Any")
    ('an int or None', None)
    """
    kinds = [KINDS.get(kind.strip()) for kind in str(annotation).split("|")]
    found = [kind for kind in kinds if kind is not None]
    return either(*found) if found and len(found) == len(kinds) else None


def numbers(name: str, value: Any, wanted: str) -> np.ndarray:
    """An array of float64, or one clear error.

    >>> numbers("a", ["x"], "a matrix of numbers")
    Traceback (most recent call last):
    eckart.errors.InputError: a must be a matrix of numbers, got ['x']
    """
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise invalid(name, value, wanted) from None


def precision(dtype: Any) -> np.dtype:
    """float32 or float64; anything else is refused.

    >>> precision("float32"), precision(float)
    (dtype('float32'), dtype('float64'))
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = np.dtype(object)
    if dtype is None or found not in (np.float32, np.float64):
        raise invalid("dtype", dtype, "float32 or float64")
    return found


def held(verb: F) -> F:
    """The verb, with its arguments checked before it begins; what came by position and is taken by
    name alone is refused in words.

    >>> def first(values: Any, n: int = 1) -> Any:
    ...     return values[:n]
    >>> held(first)([3, 4], "x")
    Traceback (most recent call last):
    eckart.errors.InputError: n must be an int, got 'x'
    >>> def alike(*, rows: Any = None, columns: Any = None) -> Any: ...
    >>> held(alike)("x")
    Traceback (most recent call last):
    eckart.errors.InputTypeError: alike() takes rows= or columns= by name, got alike('x')
    """
    parameters = inspect.signature(verb).parameters
    rules = {
        name: rule for name, p in parameters.items() if (rule := rule_of(p.annotation)) is not None
    }
    names = [
        name
        for name, p in parameters.items()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    given = [(at, name) for at, name in enumerate(names) if name in rules]
    usual = {name: parameters[name].default for name in rules}
    by_name = [f"{name}=" for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    most = (
        len(names)
        if by_name and all(p.kind is not p.VAR_POSITIONAL for p in parameters.values())
        else None
    )
    if not rules and most is None:
        return verb

    def check(name: str, value: Any) -> None:
        if value is not usual[name] and not rules[name].fits(value):
            raise invalid(name, value, rules[name].wanted)

    def refuse(value: Any) -> None:
        before = "..., " if set(names) - {"self"} else ""
        wanted = " or ".join(
            [", ".join(by_name[:-1]), by_name[-1]] if len(by_name) > 1 else by_name
        )
        raise InputTypeError(
            f"{verb.__name__}() takes {wanted} by name, got "
            f"{verb.__name__}({before}{written(value)})"
        )

    def method(*args: Any, **named: Any) -> Any:
        if most is not None and len(args) > most:
            refuse(args[most])
        for at, name in given:
            if at < len(args):
                check(name, args[at])
        for name, value in named.items():
            if name in rules:
                check(name, value)
        return verb(*args, **named)

    # with the names of the verb's own module around it: by them doctest knows which functions
    # belong to a module
    home = getattr(inspect.unwrap(verb), "__globals__", {})
    found = FunctionType(
        method.__code__, home, method.__name__, method.__defaults__, method.__closure__
    )
    return cast(F, functools.update_wrapper(found, verb))


def hold(kind: C) -> C:
    """Hold the public verbs of a class to their annotations, those that it has from others of
    eckart included."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith("eckart."):
            continue
        for name, verb in list(vars(owner).items()):
            if inspect.isfunction(verb) and not name.startswith("_") and not hasattr(verb, "held"):
                verb = held(verb)
                verb.held = True  # type: ignore[attr-defined]
                setattr(owner, name, verb)
    return kind
