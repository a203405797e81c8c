"""The answers of a model to requests: columns of one length, which a terminal, JSON and Arrow show
alike."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import InputError
from eckart.factors import Series, Topics
from eckart.index.labels import Labels, one_or_many
from eckart.io.tables.triples import observed
from eckart.io.text.tokens import Tokenizer
from eckart.io.text.vocabulary import corpus
from eckart.matrix import Observed
from eckart.query import requests
from eckart.query.ids import parse_ids
from eckart.query.requests import VERBS

Columns = dict[str, Any]
LIST_COLUMNS = 5
"""Columns of a list: row, rank, column, score, observations."""


class AnswerTable(NamedTuple):
    """Columns of one length by their names; for lists, what orders them."""

    columns: Columns
    ordered_by: str = ""


class TooLarge(InputError):
    """A request, or its answer, that takes more than the limits of a service allow."""

    code = "input.too_large"


def completes(model: Any) -> bool:
    """Whether the model fills a table of rows and columns that have ids."""
    return hasattr(model, "recommend")


def _has_cells(model: Any) -> bool:
    """Whether the model answers for cells of its own rows and columns alone, as series do."""
    return isinstance(model.fit_.factors, Series)


def verbs_of(model: Any) -> tuple[str, ...]:
    """What may be asked of a model."""
    table, embeds = completes(model), hasattr(model, "vectors_")
    can = {
        "transform": hasattr(model, "transform"),
        "predict": hasattr(model, "predict"),
        "recommend": table,
        "similar": table,
        "explain": table,
        "neighbours": embeds,
        "analogy": embeds,
        # a series fills the table of its fit, and no other
        "impute": (hasattr(model, "impute") or table) and not _has_cells(model),
        "certify": True,
    }
    return tuple(verb for verb in VERBS if can[verb])


def answer(model: Any, request: Any) -> AnswerTable:
    """The answer to a request.

    >>> from eckart import PCA
    >>> from eckart.query import requests
    >>> pca = PCA(1).fit([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])
    >>> answer(pca, requests.Transform(X=[[1.0, 3.0]])).columns["pca0"].round(3).tolist()
    [0.0]
    """
    verb = requests.verb_of(request)
    if verb not in verbs_of(model):
        raise InputError(
            f"verb must be one of {', '.join(verbs_of(model))} for a {type(model).__name__}, got "
            f"{verb!r}"
        )
    found = ANSWERS[verb](model, request)
    return (
        AnswerTable(found)
        if isinstance(found, dict)
        else AnswerTable(found.to_table(), getattr(found, "by", ""))
    )


def check_limits(model: Any, asked: Any, limits: Any) -> None:
    """Refuse what would take more than the limits allow, before any work is done."""
    verb = requests.verb_of(asked)
    lines = _lines(asked, limits)
    x, n = getattr(asked, "X", None), model.fit_.factors.n
    rows = len(set(x["rows"])) if isinstance(x, dict) else lines
    if x is not None and completes(model) and rows * n > limits.cells:
        raise TooLarge(
            f"a request must have at most {limits.cells:,} cells, got {rows:,} new rows of "
            f"{n:,} columns. Send them in parts.",
        )
    values = rows * _width(model, verb, asked)
    if values > limits.answer:
        raise TooLarge(
            f"an answer must have at most {limits.answer:,} values, got up to {values:,}. Ask "
            "for fewer rows, or a smaller n.",
        )


def _lines(asked: Any, limits: Any) -> int:
    """Rows or entries of a request."""
    x = getattr(asked, "X", None)
    lines = (
        len(x["rows"])
        if isinstance(x, dict)
        else len(x)
        if isinstance(x, list)
        else getattr(x, "num_rows", 0)
    )
    for name in ("rows", "columns", "words", "texts", "candidates", "exclude"):
        ids = getattr(asked, name, None)
        lines = max(lines, len(ids) if isinstance(ids, (list, np.ndarray)) else 1)
    if lines > limits.rows:
        raise TooLarge(
            f"a request must have at most {limits.rows:,} rows, got {lines:,}. Send them in parts.",
        )
    letters = sum(map(len, getattr(asked, "texts", None) or ()))
    if letters > limits.letters:
        raise TooLarge(
            f"texts of a request must have at most {limits.letters:,} characters, got "
            f"{letters:,}. Send them in parts.",
        )
    return lines


def _width(model: Any, verb: str, asked: Any) -> int:
    """Values of the answer for each row that was asked for."""
    f = model.fit_.factors
    if verb in ("recommend", "similar", "neighbours"):
        most = f.n if verb == "recommend" else max(f.n, *getattr(f, "shape", (1,)))
        if getattr(asked, "candidates", None) is not None:
            most = len(one_or_many(asked.candidates))
        return LIST_COLUMNS * min(asked.n, most)
    if verb == "impute" or (completes(model) and getattr(asked, "X", None) is not None):
        return int(f.n)
    return int(getattr(f, "k", 1) or 1) if verb == "transform" else 1


def _transform(model: Any, asked: Any) -> Columns:
    if (asked.X is None) == (asked.texts is None):
        what = "X is missing" if asked.X is None else "X and texts came"
        raise InputError(
            f"transform needs X, the new rows, or texts, the new documents: {what}",
        )
    rows = _rows(model, asked.X) if asked.texts is None else _counted(model, asked.texts)
    return _named(model, model.transform(rows))


def _counted(model: Any, texts: list[str]) -> Any:
    """Texts as counts of the words that the model knows, cut as those of its fit were."""
    text_plan, columns = model.fit_.plan.get("text"), model.fit_.factors.columns
    words = columns is not None and all(isinstance(word, str) for word in columns)
    if not words or not (isinstance(text_plan, dict) or isinstance(model.fit_.factors, Topics)):
        raise InputError(
            f"X, the new rows, must be given for a {type(model).__name__} that was not fitted "
            "on texts, got texts",
        )
    return corpus(
        texts, vocabulary=model, **vars(Tokenizer.from_dict((text_plan or {}).get("rules") or {}))
    )


def _impute(model: Any, asked: Any) -> Columns:
    do = getattr(model, "impute", None) or model.transform
    names = model.fit_.factors.columns
    names = [f"x{j}" for j in range(model.n_features_in_)] if names is None else names
    return _named(model, do(_rows(model, asked.X)), names)


def _predict(model: Any, asked: Any) -> Columns:
    if not completes(model) and not _has_cells(model):
        if asked.X is None or asked.rows is not None or asked.columns is not None:
            raise InputError(
                f"predict of a {type(model).__name__} wants X, the new rows, and nothing beside it",
            )
        labels = np.asarray(model.predict(_rows(model, asked.X)))
        if labels.ndim == 1:
            return {"label": labels}
        return _named(model, labels, [f"label{j}" for j in range(labels.shape[1])])
    if asked.X is not None and completes(model):
        return _named(model, model.predict(_rows(model, asked.X)))
    if asked.rows is None or asked.columns is None:
        raise InputError(
            "predict of a completion wants rows and columns, the ids of the cells"
            + " (or X, new rows)" * completes(model),
        )
    rows, columns = ids_of(asked.rows, model.row_ids), ids_of(asked.columns, model.column_ids)
    return {"prediction": model.predict(rows, columns, unknown=asked.unknown)}


def _recommend(model: Any, asked: Any) -> Any:
    if (asked.rows is None) == (asked.X is None):
        raise InputError("recommend wants rows (ids) or X (the entries of new rows), one of them")
    chosen = {
        name: None
        if getattr(asked, name) is None
        else ids_of(getattr(asked, name), model.column_ids)
        for name in ("candidates", "exclude")
    }
    how = {
        "n": asked.n,
        "exclude_seen": asked.exclude_seen,
        "by": asked.by,
        "min_support": asked.min_support,
    } | chosen
    if asked.X is not None:
        return model.recommend(X=_rows(model, asked.X), **how)
    return model.recommend(ids_of(asked.rows, model.row_ids), **how)


def _similar(model: Any, asked: Any) -> Any:
    if (asked.rows is None) == (asked.columns is None):
        raise InputError("similar wants rows or columns, one of them")
    if asked.rows is not None:
        return model.similar(rows=ids_of(asked.rows, model.row_ids), n=asked.n)
    return model.similar(columns=ids_of(asked.columns, model.column_ids), n=asked.n)


def _explain(model: Any, asked: Any) -> Columns:
    row, column = ids_of([asked.row], model.row_ids)[0], ids_of([asked.column], model.column_ids)[0]
    e = model.explain(row, column, asked.n)
    because = [*e.shares, (None, None, e.base)]
    return {"prediction": [e.prediction] * len(because)} | dict(
        zip(("column", "value", "share"), map(list, zip(*because)))
    )


def _neighbours(model: Any, asked: Any) -> Any:
    v = model.vectors_
    words = one_or_many(ids_of(asked.words, Labels(v.words, len(v), "word")))
    return v.neighbours(list(words), asked.n)


def _analogy(model: Any, asked: Any) -> Columns:
    v = model.vectors_
    labels = Labels(v.words, len(v), "word")
    a, b, c = ([ids_of([word], labels)[0]] for word in (asked.a, asked.b, asked.c))
    table = v.analogy(a, b, c, n=asked.n, method=asked.method).to_table()
    table.pop("word", None)
    return table


def _certify(model: Any, asked: Any) -> Columns:
    if asked.X is not None and "y" in signature(model.certify).parameters:
        raise InputError(
            f"X came to certify a {type(model).__name__}, which is measured with the answers y"
        )
    c = model.certificate_ if asked.X is None else model.certify(_rows(model, asked.X))
    checks = c.checks
    return {
        "holds": [c.holds] * len(checks),
        "kind": [c.kind] * len(checks),
        "check": [k.name for k in checks],
        "value": [k.value for k in checks],
        "limit": [k.limit for k in checks],
        "passed": [k.passed for k in checks],
        "meaning": [k.meaning for k in checks],
    }


ANSWERS = {
    "transform": _transform,
    "predict": _predict,
    "recommend": _recommend,
    "similar": _similar,
    "explain": _explain,
    "neighbours": _neighbours,
    "analogy": _analogy,
    "impute": _impute,
    "certify": _certify,
}


def _rows(model: Any, x: Any) -> Any:
    """New rows as the model takes them: entries by id, numbers with gaps, or a matrix as it is."""
    if isinstance(x, Observed):
        return x
    if isinstance(x, dict):
        if not completes(model):
            raise InputError(
                f"X must be lists of {model.n_features_in_} numbers for a "
                f"{type(model).__name__}, got entries",
            )
        if model.fit_.factors.columns is None:
            at = model.column_ids.indices_of(x["columns"])
            table = observed(
                {"r": x["rows"], "c": at, "v": x["values"]},
                rows="r",
                columns="c",
                values="v",
                duplicates="last",
            )
            return _spread(table, model.fit_.factors.n)
        columns = ids_of(x["columns"], model.column_ids)
        return observed(
            {"r": x["rows"], "c": columns, "v": x["values"]},
            rows="r",
            columns="c",
            values="v",
            duplicates="last",
        )
    if not isinstance(x, list):
        if completes(model) and x.num_columns != model.n_features_in_:
            raise _wrong_width(model, x.num_columns)
        return x
    wide = {len(row) for row in x}
    if len(wide) > 1:
        raise InputError(
            f"rows of X must have the same number of numbers, got {min(wide)} and {max(wide)}",
        )
    numbers = np.array([[np.nan if v is None else v for v in row] for row in x], np.float64)
    if completes(model) and numbers.shape[1] != model.n_features_in_:
        raise _wrong_width(model, numbers.shape[1])
    if np.isinf(numbers).any():
        raise InputError(
            "X must hold finite numbers or null, got a number beyond the range of 64 bits"
        )
    return numbers


def _wrong_width(model: Any, came: int) -> InputError:
    wanted = (
        f"{model.n_features_in_}, one for each column of the model (null where it is "
        "unknown), or entries by id"
    )
    return InputError(f"X must have {wanted} in each row, got {came} numbers")


def _spread(x: Observed, n: int) -> Observed:
    """Entries whose column labels are positions, as rows of n columns."""
    assert x.columns is not None
    at = np.asarray(x.columns)[x.indices]
    i = np.repeat(np.arange(x.shape[0]), x.row_counts())
    return Observed.from_codes(i, at, x.data, (x.shape[0], n), x.rows, None)


def ids_of(ids: Any, labels: Labels) -> Any:
    """Ids of a request as ids of the model."""
    several = one_or_many(ids)
    return parse_ids(several, labels)


def _named(model: Any, values: Any, names: Any = None) -> Columns:
    """A matrix as columns."""
    values = np.asarray(values)
    if values.ndim == 1:
        return {"value": values}
    names = model.get_feature_names_out() if names is None else names
    return {str(name): values[:, j] for j, name in enumerate(names)}
