"""What may be asked of a model, said once: for each question a type with its fields, and for each
field its kind. Python, the shell, the service and the studio ask by them; requests from outside are
checked against them, and the OpenAPI file is made of them.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from eckart.errors import InputError, invalid

# an id that is not known is compared with all that are, which takes time that grows with its length
ID: dict[str, Any] = {
    "type": ["string", "integer"],
    "maxLength": 4096,
    "minimum": -(2**63),
    "maximum": 2**63 - 1,
}
IDS = {"oneOf": [ID, {"type": "array", "items": ID, "minItems": 1}]}
NUMBER = {"type": ["number", "null"]}
ENTRIES = {
    "type": "object",
    "description": "Observed entries: one row id, column id and value for each.",
    "required": ["rows", "columns", "values"],
    "additionalProperties": False,
    "properties": {
        "rows": {"type": "array", "items": ID, "minItems": 1},
        "columns": {"type": "array", "items": ID, "minItems": 1},
        "values": {"type": "array", "items": {"type": "number"}, "minItems": 1},
    },
}
X = {
    "description": "New rows: lists of numbers (null is missing), or observed entries by id for a "
    "completion.",
    "oneOf": [
        {
            "type": "array",
            "minItems": 1,
            "items": {"type": "array", "minItems": 1, "items": NUMBER},
        },
        ENTRIES,
    ],
}


def _whole(low: int, high: int, what: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "description": what}


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


TEXTS = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string"},
    "description": "documents, for a model that was fitted on texts",
}
COUNT = _whole(1, 1000, "how many for each")
KINDS: dict[str, dict[str, Any]] = {
    "X": X,
    "texts": TEXTS,
    "rows": IDS,
    "columns": IDS,
    "row": ID,
    "column": ID,
    "words": IDS,
    "a": ID,
    "b": ID,
    "c": ID,
    "candidates": IDS,
    "exclude": IDS,
    "n": COUNT,
    "exclude_seen": {"type": "boolean"},
    "by": _one_of("auto", "chance", "prediction"),
    "min_support": _whole(0, 2**31, "observations"),
    "unknown": _one_of("raise", "mean", "nan"),
    "method": _one_of("add", "multiply"),
}


@dataclass(frozen=True)
class Transform:
    """Codes of new rows; for a completion, new rows with their unknown entries filled in (fold-in);
    shares of topics or parts of new texts."""

    X: Any = None
    texts: Any = None


@dataclass(frozen=True)
class Predict:
    """Values at the cells (rows[p], columns[p]) of a completion; labels of new rows X of a mixture
    or a network."""

    rows: Any = None
    columns: Any = None
    X: Any = None
    unknown: str = "raise"


@dataclass(frozen=True)
class Recommend:
    """The n best columns for rows by id, or for new rows X that are folded in."""

    rows: Any = None
    X: Any = None
    n: int = 10
    exclude_seen: bool = True
    candidates: Any = None
    exclude: Any = None
    by: str = "auto"
    min_support: int = 0


@dataclass(frozen=True)
class Similar:
    """Rows (or columns) whose codes point in the most similar direction, with their cosine."""

    rows: Any = None
    columns: Any = None
    n: int = 10


@dataclass(frozen=True)
class Explain:
    """Why a cell is predicted as it is: mean and biases, and the share of each observed entry."""

    row: Any
    column: Any
    n: int = 10


@dataclass(frozen=True)
class NeighboursRequest:
    """Words (or items) of the largest cosine."""

    words: Any
    n: int = 10


@dataclass(frozen=True)
class Analogy:
    """a is to b as c is to which words?"""

    a: Any
    b: Any
    c: Any
    n: int = 5
    method: str = "add"


@dataclass(frozen=True)
class Impute:
    """New rows with their missing entries filled in."""

    X: Any


@dataclass(frozen=True)
class Certify:
    """The certificate of the model; measured anew on X where it is given."""

    X: Any = None


VERBS: dict[str, Any] = {
    "transform": Transform,
    "predict": Predict,
    "recommend": Recommend,
    "similar": Similar,
    "explain": Explain,
    "neighbours": NeighboursRequest,
    "analogy": Analogy,
    "impute": Impute,
    "certify": Certify,
}


def parse(verb: str, given: dict[str, Any], table: Any = None) -> Any:
    """A checked request; a field that is unknown, missing or of another kind is refused by its
    name. ``table`` is X, where it came as an Arrow table."""
    kind = VERBS[verb]
    known = {f.name: f for f in fields(kind)}
    for name in given:
        if name not in known:
            raise InputError(
                f"field must be one of {', '.join(known)} for {verb}, got {name[:80]!r}"
            )
    values = {name: value for name, value in given.items() if value is not None}
    if table is not None and ("X" not in known or "X" in values):
        raise InputError(
            f"a table must have columns {', '.join(n for n in known if n != 'X')} for {verb}, "
            f"got {', '.join(table.column_names[:5])[:80]}",
        )
    held = values if table is None else values | {"X": table}
    for name, field in known.items():
        if name not in held and field.default is MISSING:
            raise InputError(f"{name} must be given for {verb}: {kind.__doc__}")
    for name, value in values.items():
        _check(name, value, KINDS[name])
    return kind(**held)


def _check(name: str, value: Any, kind: dict[str, Any]) -> None:
    """The part of JSON Schema that KINDS uses."""
    if "oneOf" in kind:
        found = [k for k in kind["oneOf"] if _is(value, k["type"])]
        if not found:
            raise _unfit(name, value, " or ".join(_words(k["type"]) for k in kind["oneOf"]))
        _check(name, value, found[0])
        return
    if not _is(value, kind["type"]):
        raise _unfit(name, value, _words(kind["type"]))
    if "enum" in kind and value not in kind["enum"]:
        raise _unfit(name, value, " or ".join(kind["enum"]))
    if isinstance(value, int) and not kind.get("minimum", value) <= value <= kind.get(
        "maximum", value
    ):
        raise _unfit(name, value, f"{kind['minimum']} to {kind['maximum']}")
    if isinstance(value, str) and len(value) > kind.get("maxLength", len(value)):
        raise _unfit(name, value, f"text of at most {kind['maxLength']:,} characters")
    if isinstance(value, list):
        if len(value) < kind.get("minItems", 0):
            raise _unfit(name, value, "at least one")
        inner = kind["items"]
        if inner["type"] == "array" or not _all_are(value, inner):
            for i, v in enumerate(value):
                _check(f"{name}[{i}]", v, inner)
    if isinstance(value, dict):
        for part in kind["required"]:
            if part not in value:
                raise InputError(f"{name}.{part} must be given: {', '.join(kind['required'])}")
        for part, inner in value.items():
            if part not in kind["properties"]:
                raise InputError(
                    f"{name} must have {', '.join(kind['required'])}, got {name}.{part[:80]}"
                )
            _check(f"{name}.{part}", inner, kind["properties"][part])
        if len({len(v) for v in value.values()}) > 1:
            raise InputError(
                f"{name} must have as many of each, got "
                f"{', '.join((f'{len(v)} {k}' for k, v in value.items()))}",
            )


def _all_are(values: list[Any], kind: dict[str, Any]) -> bool:
    """Whether a list of ids or numbers is as it should be, without a look at each by itself; where
    it is not, that look finds the words."""
    types = set(map(type, values))
    if kind is ID:
        return (types == {str} and max(map(len, values)) <= ID["maxLength"]) or (
            types == {int} and ID["minimum"] <= min(values) and max(values) <= ID["maximum"]
        )
    return all(
        any(issubclass(t, TYPES[name]) for name in _names(kind["type"])) and t is not bool
        for t in types
    )


TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "boolean": bool,
    "null": type(None),
}


def _names(types: Any) -> list[str]:
    return types if isinstance(types, list) else [types]


def _is(value: Any, types: Any) -> bool:
    names = _names(types)
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[t]) for t in names)


def _unfit(name: str, value: Any, rule: str) -> InputError:
    """A field that holds something else than it should; no more of it is written than a line."""
    return invalid(name, value[:80] if isinstance(value, (str, list)) else value, rule)


def _words(types: Any) -> str:
    said = {
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
        "array": "a list",
        "object": "an object",
        "boolean": "true or false",
        "null": "null",
    }
    return " or ".join(said[t] for t in _names(types))


def verb_of(request: Any) -> str:
    """The name of a question."""
    return next(verb for verb, kind in VERBS.items() if kind is type(request))
