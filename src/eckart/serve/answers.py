"""Questions to a model, each a function of a checked request; the answer is columns of one length,
which JSON and Arrow write alike."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.factors import Topics
from eckart.index.labels import Labels, one_or_many
from eckart.io.tables.triples import observed
from eckart.io.text.tokens import Tokenizer
from eckart.io.text.vocabulary import corpus
from eckart.matrix import Observed
from eckart.serve.models import Served
from eckart.serve.problems import Problem

Columns = dict[str, Any]
LIST_COLUMNS = 5
"""Columns of a list: row, rank, column, score, observations."""


def check_limits(served: Served, verb: str, asked: Any, limits: Any) -> None:
    """Refuse what the model cannot, and what would take more than the limits allow, before any work
    is done."""
    if verb not in served.verbs:
        kind = type(served.model).__name__
        raise Problem(
            422,
            f"verb must be one of {', '.join(served.verbs)} for model {served.name!r} "
            f"({kind}), got {verb!r}",
        )
    lines = _lines(asked, limits)
    x, n = getattr(asked, "X", None), served.model.fit_.factors.n
    rows = len(set(x["rows"])) if isinstance(x, dict) else lines
    if x is not None and served.completes and rows * n > limits.cells:
        raise Problem(
            413,
            f"a request must have at most {limits.cells:,} cells, got {rows:,} new rows of "
            f"{n:,} columns. Send them in parts.",
        )
    values = rows * _width(served, verb, asked)
    if values > limits.answer:
        raise Problem(
            413,
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
        raise Problem(
            413,
            f"a request must have at most {limits.rows:,} rows, got {lines:,}. Send them in parts.",
        )
    letters = sum(map(len, getattr(asked, "texts", None) or ()))
    if letters > limits.letters:
        raise Problem(
            413,
            f"texts of a request must have at most {limits.letters:,} characters, got "
            f"{letters:,}. Send them in parts.",
        )
    return lines


def _width(served: Served, verb: str, asked: Any) -> int:
    """Values of the answer for each row that was asked for."""
    f = served.model.fit_.factors
    if verb in ("recommend", "similar", "neighbours"):
        most = f.n if verb == "recommend" else max(f.n, *getattr(f, "shape", (1,)))
        if getattr(asked, "candidates", None) is not None:
            most = len(one_or_many(asked.candidates))
        return LIST_COLUMNS * min(asked.n, most)
    if verb == "impute" or (served.completes and getattr(asked, "X", None) is not None):
        return int(f.n)
    return int(getattr(f, "k", 1) or 1) if verb == "transform" else 1


def answer(served: Served, verb: str, asked: Any) -> Columns:
    """The answer to a request."""
    return ASKED[verb](served, asked)


def quick(served: Served, verb: str, asked: Any) -> np.ndarray | None:
    """Positions of rows whose lists can be made together with those of other requests; None where
    the question is another."""
    if verb != "recommend" or served.lists is None or asked.rows is None or asked.X is not None:
        return None
    if (
        asked.candidates is not None
        or asked.exclude is not None
        or asked.min_support
        or by_of(served, asked) != "prediction"
    ):
        return None
    row_ids = served.lists.row_ids
    return row_ids.indices_of(one_or_many(ids_of(asked.rows, row_ids)))


def by_of(served: Served, asked: Any) -> str:
    """What "auto" stands for: the order by chance where the model file holds it. It is never
    learned while someone waits."""
    if asked.by != "auto":
        return asked.by
    demand = getattr(served.model, "_demand", None)
    return "chance" if demand is not None and demand.informative else "prediction"


def listed(found: Any) -> Columns:
    """Lists as columns."""
    return found.to_table()


def _transform(served: Served, asked: Any) -> Columns:
    if (asked.X is None) == (asked.texts is None):
        what = "X is missing" if asked.X is None else "X and texts came"
        raise Problem(
            422,
            f"transform needs X, the new rows, or texts, the new documents: {what}",
        )
    rows = _rows(served, asked.X) if asked.texts is None else _counted(served, asked.texts)
    return _named(served, served.model.transform(rows))


def _counted(served: Served, texts: list[str]) -> Any:
    """Texts as counts of the words that the model knows, cut as those of its fit were."""
    model = served.model
    text_plan, columns = model.fit_.plan.get("text"), model.fit_.factors.columns
    words = columns is not None and all(isinstance(word, str) for word in columns)
    if not words or not (isinstance(text_plan, dict) or isinstance(model.fit_.factors, Topics)):
        raise Problem(
            422,
            f"X, the new rows, must be given for a {type(model).__name__} that was not fitted "
            "on texts, got texts",
        )
    return corpus(
        texts, vocabulary=model, **vars(Tokenizer.from_dict((text_plan or {}).get("rules") or {}))
    )


def _impute(served: Served, asked: Any) -> Columns:
    do = getattr(served.model, "impute", None) or served.model.transform
    names = served.model.fit_.factors.columns
    names = [f"x{j}" for j in range(served.model.n_features_in_)] if names is None else names
    return _named(served, do(_rows(served, asked.X)), names)


def _predict(served: Served, asked: Any) -> Columns:
    model = served.model
    if not served.completes and not served.has_cells:
        if asked.X is None or asked.rows is not None or asked.columns is not None:
            raise Problem(
                422,
                f"predict of a {type(model).__name__} wants X, the new rows, and nothing beside it",
            )
        labels = np.asarray(model.predict(_rows(served, asked.X)))
        if labels.ndim == 1:
            return {"label": labels}
        return _named(served, labels, [f"label{j}" for j in range(labels.shape[1])])
    if asked.X is not None and served.completes:
        return _named(served, model.predict(_rows(served, asked.X)))
    if asked.rows is None or asked.columns is None:
        raise Problem(
            422,
            "predict of a completion wants rows and columns, the ids of the cells"
            + " (or X, new rows)" * served.completes,
        )
    rows, columns = ids_of(asked.rows, model.row_ids), ids_of(asked.columns, model.column_ids)
    return {"prediction": model.predict(rows, columns, unknown=asked.unknown)}


def _recommend(served: Served, asked: Any) -> Columns:
    model = served.model
    if (asked.rows is None) == (asked.X is None):
        raise Problem(422, "recommend wants rows (ids) or X (the entries of new rows), one of them")
    chosen = {
        name: None
        if getattr(asked, name) is None
        else ids_of(getattr(asked, name), model.column_ids)
        for name in ("candidates", "exclude")
    }
    how = {
        "n": asked.n,
        "exclude_seen": asked.exclude_seen,
        "by": by_of(served, asked),
        "min_support": asked.min_support,
    } | chosen
    if asked.X is not None:
        return listed(model.recommend(X=_rows(served, asked.X), **how))
    return listed(model.recommend(ids_of(asked.rows, model.row_ids), **how))


def _similar(served: Served, asked: Any) -> Columns:
    model = served.model
    if (asked.rows is None) == (asked.columns is None):
        raise Problem(422, "similar wants rows or columns, one of them")
    if asked.rows is not None:
        return listed(model.similar(rows=ids_of(asked.rows, model.row_ids), n=asked.n))
    return listed(model.similar(columns=ids_of(asked.columns, model.column_ids), n=asked.n))


def _explain(served: Served, asked: Any) -> Columns:
    model = served.model
    row, column = ids_of([asked.row], model.row_ids)[0], ids_of([asked.column], model.column_ids)[0]
    e = model.explain(row, column, asked.n)
    because = [*e.shares, (None, None, e.base)]
    return {"prediction": [e.prediction] * len(because)} | dict(
        zip(("column", "value", "share"), map(list, zip(*because)))
    )


def _neighbours(served: Served, asked: Any) -> Columns:
    v = served.model.vectors_
    words = one_or_many(ids_of(asked.words, Labels(v.words, len(v), "word")))
    return v.neighbours(list(words), asked.n).to_table()


def _analogy(served: Served, asked: Any) -> Columns:
    v = served.model.vectors_
    labels = Labels(v.words, len(v), "word")
    a, b, c = ([ids_of([word], labels)[0]] for word in (asked.a, asked.b, asked.c))
    table = v.analogy(a, b, c, n=asked.n, method=asked.method).to_table()
    table.pop("word", None)
    return table


def _certify(served: Served, asked: Any) -> Columns:
    model = served.model
    if asked.X is not None and "y" in signature(model.certify).parameters:
        raise Problem(
            422, f"X came to certify a {type(model).__name__}, which is measured with the answers y"
        )
    c = model.certificate_ if asked.X is None else model.certify(_rows(served, asked.X))
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


ASKED = {
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


def _rows(served: Served, x: Any) -> Any:
    """New rows through the door: entries by id, or numbers with gaps."""
    completes = served.completes
    if isinstance(x, dict):
        if not completes:
            raise Problem(
                422,
                f"X must be lists of {served.model.n_features_in_} numbers for a "
                f"{type(served.model).__name__}, got entries",
            )
        if served.model.fit_.factors.columns is None:
            at = served.model.column_ids.indices_of(x["columns"])
            table = observed(
                {"r": x["rows"], "c": at, "v": x["values"]},
                rows="r",
                columns="c",
                values="v",
                duplicates="last",
            )
            return _spread(table, served.model.fit_.factors.n)
        columns = ids_of(x["columns"], served.model.column_ids)
        return observed(
            {"r": x["rows"], "c": columns, "v": x["values"]},
            rows="r",
            columns="c",
            values="v",
            duplicates="last",
        )
    if not isinstance(x, list):
        if completes and x.num_columns != served.model.n_features_in_:
            raise _wrong_width(served, x.num_columns)
        return x
    wide = {len(row) for row in x}
    if len(wide) > 1:
        raise Problem(
            422,
            f"rows of X must have the same number of numbers, got {min(wide)} and {max(wide)}",
        )
    numbers = np.array([[np.nan if v is None else v for v in row] for row in x], np.float64)
    if completes and numbers.shape[1] != served.model.n_features_in_:
        raise _wrong_width(served, numbers.shape[1])
    if np.isinf(numbers).any():
        raise Problem(
            422, "X must hold finite numbers or null, got a number beyond the range of 64 bits"
        )
    return numbers


def _wrong_width(served: Served, came: int) -> Problem:
    wanted = (
        f"{served.model.n_features_in_}, one for each column of the model (null where it is "
        "unknown), or entries by id"
    )
    return Problem(422, f"X must have {wanted} in each row, got {came} numbers")


def _spread(x: Observed, n: int) -> Observed:
    """Entries whose column labels are positions, as rows of n columns."""
    assert x.columns is not None
    at = np.asarray(x.columns)[x.indices]
    i = np.repeat(np.arange(x.shape[0]), x.row_counts())
    return Observed.from_codes(i, at, x.data, (x.shape[0], n), x.rows, None)


def ids_of(ids: Any, labels: Labels) -> Any:
    """Ids of a request as ids of the model: dates are written as text."""
    if labels.kind != "dates":
        return ids
    try:
        return np.array(one_or_many(ids), "M8")
    except (ValueError, TypeError):
        raise InputError(f"{labels.axis} must be a date such as 2024-05-01, got {ids!r}") from None


def _named(served: Served, values: Any, names: Any = None) -> Columns:
    """A matrix as columns."""
    values = np.asarray(values)
    if values.ndim == 1:
        return {"value": values}
    names = served.model.get_feature_names_out() if names is None else names
    return {str(name): values[:, j] for j, name in enumerate(names)}
