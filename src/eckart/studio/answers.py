"""The places of the studio that answer at once: each a function of the studio and a question. The
page asks them over HTTP, a notebook by messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eckart import __version__
from eckart.errors import EckartError
from eckart.serve.problems import Problem
from eckart.studio import (
    cards,
    complete,
    embed,
    explain,
    filled,
    forms,
    hidden_errors,
    maps,
    reduce,
    topics,
)
from eckart.studio.asks import Answer, Ask, as_json, numbers
from eckart.studio.complete import position
from eckart.studio.fitted_to import COMPARED, unlike
from eckart.studio.folder import Folder
from eckart.studio.jobs import Jobs
from eckart.studio.library import Library
from eckart.studio.names import found_by
from eckart.studio.opened import Opened, OpenedRows, verb_of
from eckart.studio.places import MapSide, side_of
from eckart.studio.suggest import offers


class Studio:
    """A folder, its jobs, and what is open of it."""

    def __init__(self, folder: Folder):
        self.folder = folder
        self.jobs = Jobs(folder)
        self.library = Library(folder, self.jobs)

    def answer(self, method: str, place: str, ask: Ask) -> Answer:
        """The answer to a question; errors of eckart are problems in its words."""
        do = PLACES.get((method, place))
        if do is None:
            known = [m for m, p in PLACES if p == place]
            if known:
                raise Problem(
                    405,
                    f"the address must be {', '.join(known)}, got {method[:20]} {place}",
                    {"allow": ", ".join(known)},
                )
            raise Problem(404, f"{method[:20]} {place[:200]} came, which is no place of the studio")
        try:
            found = do(self, ask)
        except EckartError as error:
            raise Problem(422, " ".join(str(error).split())) from None
        except MemoryError:
            raise Problem(
                422,
                "there is not enough memory for this; close other programs, or look at "
                "a part of the data",
            ) from None
        except FileNotFoundError as error:
            raise Problem(
                404,
                f"{Path(error.filename or 'a file').name} is no longer there; see GET /api/folder",
            ) from None
        return found if isinstance(found, Answer) else as_json(found)

    # what most questions begin with

    def model(self, ask: Ask, *rooms: str) -> Opened:
        opened = self.library.model(ask.raw("file"))
        if rooms:
            opened.wants(*rooms)
        return opened

    def side(self, ask: Ask, file: str = "file") -> MapSide:
        opened = self.library.model(ask.raw(file))
        return side_of(
            self.library,
            opened,
            ask.text("data") if file == "file" else ask.text("other_data"),
            ask.text("side"),
        )

    def rows(self, ask: Ask, opened: Opened) -> OpenedRows:
        return self.library.rows(opened, ask.text("data"))

    def image(self, opened: Opened) -> dict[str, int] | None:
        return cards.image_size(opened, self.jobs.of_model(opened.file))

    def row_at(self, ask: Ask, rows: OpenedRows) -> int:
        """The row that a question names, by position or by id."""
        at = ask.whole("at", None, 0, rows.count - 1)
        if at is not None:
            return at
        id = str(ask.id("id"))
        place = rows.kept.get("place", lambda: {str(rows.id_of(i)): i for i in range(rows.count)})
        if id not in place:
            raise Problem(422, f"id={id[:80]!r} came, which no row of {rows.file} has")
        return place[id]


def _folder(studio: Studio, ask: Ask) -> Any:
    files, more = studio.folder.listing()
    made = {job.model: job for job in studio.jobs.jobs.values() if job.written}
    reports = {job.report: job for job in studio.jobs.jobs.values() if job.written and job.report}
    for f in files:
        job = made.get(f["file"]) or reports.get(f["file"])
        if f["kind"] == "model":
            f["verb"] = verb_of(f["class"])
        f |= {"made_by": None if job is None else job.id, "data": None if job is None else job.file}
    return {
        "folder": studio.folder.root.name or "/",
        "version": __version__,
        "open": studio.folder.opened,
        "files": files,
        "more": more,
    }


def _data(studio: Studio, ask: Ask) -> Any:
    sheet = studio.library.sheet(ask.raw("file"))
    return {"file": ask.raw("file")} | sheet.card() | {"verbs": offers(sheet)}


def _data_rows(studio: Studio, ask: Ask) -> Any:
    sheet = studio.library.sheet(ask.raw("file"))
    return sheet.page(
        ask.place("first", 0), ask.count("count", 100), ask.text("sort"), ask.flag("down")
    )


def _card(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask)
    card = cards.card(studio.library, opened)
    if ask.text("data"):
        card |= {
            "data": ask.text("data"),
            "sides": cards.sides(opened, ask.text("data")),
            "can": cards.can(opened, ask.text("data")),
        }
    axes: dict[str, Any] = {}
    colour: dict[str, Any] = {}
    for name in card["sides"]:
        try:
            side = side_of(studio.library, opened, card["data"], name)
        # the data do not fit after all: say so, and show the rest
        except (Problem, EckartError) as error:
            card["sides"] = [s for s in card["sides"] if s != name]
            card["map_refused"] = getattr(error, "detail", None) or str(error)
            continue
        axes[name] = [{"key": key, "name": title} for key, title in zip(side.keys, side.titles)]
        colour[name] = side.colours()
    return card | {
        "axes": axes,
        "colour": colour,
        "data_differs": _differs(studio, opened, card["data"]),
    }


def _differs(studio: Studio, opened: Opened, data: str | None) -> str | None:
    """What is other in the data than it was at the fit."""
    if not data or opened.room not in COMPARED:
        return None
    try:
        rows = studio.library.rows(opened, data)
        return rows.kept.get("unlike", lambda: unlike(opened, rows))
    except (Problem, EckartError):  # that they do not fit at all is said elsewhere
        return None


def _map(studio: Studio, ask: Ask) -> Answer:
    side = studio.side(ask)
    return numbers(
        *maps.coordinates(
            side, ask.text("x", side.keys[0]), ask.text("y", side.keys[min(1, len(side.keys) - 1)])
        )
    )


def _colour(studio: Studio, ask: Ask) -> Answer:
    return numbers(*maps.colours(studio.side(ask), ask.text("by")))


def _axes(side: MapSide, ask: Ask) -> tuple[Any, Any]:
    return ask.text("x", side.keys[0]), ask.text("y", side.keys[min(1, len(side.keys) - 1)])


def _labels(studio: Studio, ask: Ask) -> Any:
    side = studio.side(ask)
    window = tuple(ask.number(name, None) for name in ("left", "right", "bottom", "top"))
    return {"labels": maps.labels(side, *_axes(side, ask), window, ask.count("n", 60, 500))}  # type: ignore[arg-type]


def _nearest(studio: Studio, ask: Ask) -> Any:
    side = studio.side(ask)
    return maps.nearest_to(side, *_axes(side, ask), ask.raw("place"))


def _chosen(side: MapSide, ask: Ask) -> np.ndarray:
    x, y = _axes(side, ask)
    return maps.chosen(side, {"at": ask.raw("at"), "polygon": ask.raw("polygon"), "x": x, "y": y})


def _select(studio: Studio, ask: Ask) -> Answer:
    side = studio.side(ask)
    at = maps.inside(side, *_axes(side, ask), ask.raw("polygon"))
    return numbers({"n": len(at)}, at.astype("<u4").tobytes())


def _table(studio: Studio, ask: Ask) -> Any:
    side = studio.side(ask)
    return maps.table(
        side,
        _chosen(side, ask),
        ask.place("first", 0),
        ask.count("count", 100),
        ask.text("sort"),
        ask.flag("down"),
    )


def _export(studio: Studio, ask: Ask) -> Answer:
    side = studio.side(ask)
    name = f"{Path(str(ask.raw('file'))).stem}-selection.csv".replace('"', "")
    head = {
        "content-disposition": "attachment; "
        f'filename="{name.encode("ascii", "replace").decode().replace("?", "_")}"'
    }
    return Answer(maps.exported(side, _chosen(side, ask)), "text/csv; charset=utf-8", 200, head)


def _names(studio: Studio, ask: Ask) -> Any:
    side = studio.side(ask)
    at = [ask_at for ask_at in str(ask.text("at", "")).split(",") if ask_at]
    if not at or len(at) > 1000 or not all(a.isdigit() and int(a) < len(side) for a in at):
        raise Problem(
            422,
            f"at must be 1 to 1000 positions of 0 to {len(side) - 1}, with commas, got "
            f"{','.join(at)[:80]!r}",
        )
    points = [maps.point(side, int(a)) for a in at]
    return {
        "names": [t["id"] for t in points],
        "titles": None if side.called is None else [t["title"] for t in points],
    }


def _search(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask)
    if opened.room in ("complete", "series"):  # also for models without a map
        usual = "columns" if opened.room == "complete" else "rows"
        return found_by(
            _ids_of(studio, opened, ask.text("side") or usual),
            ask.text("text", "") or "",
            ask.count("n", 20),
        )
    return found_by(studio.side(ask), ask.text("text", "") or "", ask.count("n", 20))


def _ids_of(studio: Studio, opened: Opened, side: str) -> MapSide:
    """A side of a completion by its ids alone."""
    if side not in ("rows", "columns"):
        raise Problem(422, f"side must be rows or columns, got {side[:40]!r}")
    x = opened.model.observed_
    counts = np.asarray(x.row_counts() if side == "rows" else x.column_counts(), np.float64)

    def make() -> MapSide:
        called = complete.titles_of(studio.library, opened) if side == "columns" else None
        empty = np.zeros((len(counts), 2), np.float32)
        return MapSide(
            opened,
            side,
            empty,
            ["1", "2"],
            ["", ""],
            None,
            None,
            complete.labels_of(opened, side),
            called,
            counts,
            {"observations": counts},
        )

    return opened.kept.get(("ids", side), make)


def _side_place(studio: Studio, ask: Ask, side: MapSide) -> int:
    at = ask.whole("at", None, 0, len(side) - 1)
    if at is not None:
        return at
    if side.opened.room == "complete":
        return position(side.opened, side.side, ask.id("id"))
    if side.opened.room == "embed":
        word = embed.one(side.opened, ask.id("id"))
        return int(side.labels.index_of(word))
    assert side.rows is not None
    return studio.row_at(ask, side.rows)


def _neighbours(studio: Studio, ask: Ask) -> Any:
    side = studio.side(ask)
    return embed.neighbours(side, _side_place(studio, ask, side), ask.count())


def _recommend(studio: Studio, ask: Ask) -> Any:
    return complete.recommend(
        studio.library, studio.model(ask, "complete"), dict(ask.given), ask.count()
    )


def _similar(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "complete")
    side = ask.text("side") or "columns"
    ids = _ids_of(studio, opened, side)
    i = position(opened, side, ask.id("id"))
    found = opened.model.similar(**{side: ids.labels.names([i])}, n=ask.count())
    kept = [(int(j), float(s)) for j, s in zip(found.positions[0], found.scores[0]) if j >= 0]
    return {
        "of": maps.point(ids, i),
        "by": found.by,
        "neighbours": [maps.point(ids, j) | {"score": s} for j, s in kept],
    }


def _reduce_row(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "reduce")
    rows = studio.rows(ask, opened)
    return reduce.row(
        opened, rows, studio.row_at(ask, rows), ask.whole("k", None), studio.image(opened)
    )


def _document(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "topics", "parts")
    rows = studio.rows(ask, opened)
    return topics.document(
        opened, rows, studio.row_at(ask, rows), studio.folder.existing(rows.file)
    )


def _documents(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "topics", "parts")
    rows = studio.rows(ask, opened)
    return topics.documents(
        opened, rows, ask.place("number"), ask.count(), studio.folder.existing(rows.file)
    )


def _complete_row(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "complete")
    side = "columns" if ask.given.get("column") not in (None, "") else "rows"
    id = ask.id("column" if side == "columns" else "id")
    return complete.row(
        studio.library, opened, side, id, ask.place("first", 0), ask.count("count", 100)
    )


def _predict(studio: Studio, ask: Ask) -> Any:
    level = ask.number("level", 0.9, 1e-6, 1 - 1e-6)
    return complete.predict(
        studio.library, studio.model(ask, "complete"), ask.raw("rows"), ask.raw("columns"), level
    )


def _regroup(do: Callable[..., Opened], *names: str) -> Callable[[Studio, Ask], Any]:
    def call(studio: Studio, ask: Ask) -> Any:
        opened = do(
            studio.library, studio.model(ask, "topics", "parts"), *(ask.raw(name) for name in names)
        )
        return topics.listed(opened, 10)

    return call


def _mixture_row(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "mixture")
    rows = studio.rows(ask, opened)
    return explain.mixture_row(opened, rows, studio.row_at(ask, rows))


def _table_row(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "table")
    rows = studio.rows(ask, opened)
    return filled.table_row(opened, rows, studio.row_at(ask, rows))


def _table_why(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "table")
    rows = studio.rows(ask, opened)
    return filled.table_why(opened, rows, studio.row_at(ask, rows), str(ask.id("column")))


def _series_row(studio: Studio, ask: Ask) -> Any:
    opened = studio.model(ask, "series")
    at = ask.whole("at", None)
    i = position(opened, "rows", ask.id("id")) if at is None else at
    return filled.series_row(
        opened,
        i,
        ask.number("level", 0.9, 1e-6, 1 - 1e-6),
        ask.whole("first", None),
        ask.whole("ahead", None),
    )


def _match(studio: Studio, ask: Ask) -> Any:
    left, right = studio.side(ask), studio.side(ask, "other")
    return {"at": embed.match(left, right, maps.chosen(left, {"at": ask.raw("at") or []}))}


def _side_by_side(studio: Studio, ask: Ask) -> Any:
    left, right = studio.side(ask), studio.side(ask, "other")
    return embed.side_by_side(left, right, _side_place(studio, ask, left), ask.count())


def _moved(studio: Studio, ask: Ask) -> Any:
    return embed.moved(
        studio.library, studio.side(ask), studio.side(ask, "other"), ask.count("n", 30)
    )


def _form(verb: str) -> Callable[[Studio, Ask], Any]:
    return lambda studio, ask: forms.form(verb)


def _start(studio: Studio, ask: Ask) -> Answer:
    job = studio.jobs.start(
        ask.raw("verb"), ask.raw("file"), ask.raw("options") or {}, ask.raw("name")
    )
    return as_json(job.to_json(), 201)


PLACES: dict[tuple[str, str], Callable[[Studio, Ask], Any]] = {
    ("GET", "folder"): _folder,
    ("GET", "data"): _data,
    ("GET", "data/rows"): _data_rows,
    ("GET", "model"): _card,
    ("GET", "model/map"): _map,
    ("GET", "model/colour"): _colour,
    ("GET", "model/labels"): _labels,
    ("POST", "model/nearest"): _nearest,
    ("POST", "model/select"): _select,
    ("POST", "model/table"): _table,
    ("POST", "model/export"): _export,
    ("GET", "model/names"): _names,
    ("GET", "model/search"): _search,
    ("GET", "model/neighbours"): _neighbours,
    ("GET", "reduce/components"): lambda s, a: reduce.components(s.model(a, "reduce")),
    ("GET", "reduce/loadings"): lambda s, a: reduce.loadings(
        o := s.model(a, "reduce"), a.place("number", 1), a.count("n", 40), s.image(o)
    ),
    ("GET", "reduce/row"): _reduce_row,
    ("GET", "reduce/outliers"): lambda s, a: reduce.outliers(
        o := s.model(a, "reduce"), s.rows(a, o), a.count("n", 50)
    ),
    ("GET", "complete/row"): _complete_row,
    ("POST", "complete/predict"): _predict,
    ("POST", "complete/recommend"): _recommend,
    ("POST", "complete/why"): lambda s, a: complete.why(
        s.library, s.model(a, "complete"), dict(a.given), a.count()
    ),
    ("GET", "complete/similar"): _similar,
    ("GET", "complete/support"): lambda s, a: hidden_errors.support(s.model(a, "complete")),
    ("GET", "complete/coverage"): lambda s, a: hidden_errors.coverage(
        s.model(a, "complete"), a.count("n", 10, 100)
    ),
    ("GET", "topics"): lambda s, a: topics.listed(
        s.model(a, "topics", "parts"), a.count("words", 10, 100)
    ),
    ("GET", "topics/words"): lambda s, a: topics.words(
        s.model(a, "topics", "parts"),
        a.place("number", 1),
        a.count("n", 30),
        a.number("balance", 0.6, 0, 1),
    ),
    ("GET", "topics/word"): lambda s, a: topics.word(
        s.model(a, "topics", "parts"), str(a.id("word"))
    ),
    ("GET", "topics/documents"): _documents,
    ("GET", "topics/document"): _document,
    ("POST", "topics/rename"): _regroup(topics.rename, "number", "name"),
    ("POST", "topics/merge"): _regroup(topics.merge, "numbers", "name"),
    ("POST", "topics/split"): _regroup(topics.split, "number"),
    ("GET", "parts"): lambda s, a: explain.parts(
        o := s.model(a, "parts"), a.count("n", 20), s.image(o)
    ),
    ("GET", "mixture"): lambda s, a: explain.mixture(
        s.model(a, "mixture"), a.text("x"), a.text("y"), a.number("level", 0.9, 1e-6, 1 - 1e-6)
    ),
    ("GET", "mixture/row"): _mixture_row,
    ("GET", "table"): lambda s, a: filled.table(s.model(a, "table")),
    ("GET", "table/row"): _table_row,
    ("GET", "table/why"): _table_why,
    ("GET", "series"): lambda s, a: filled.series(s.model(a, "series")),
    ("GET", "series/row"): _series_row,
    ("GET", "embed/analogy"): lambda s, a: embed.analogy(
        s.model(a, "embed"), a.id("a"), a.id("b"), a.id("c"), a.count()
    ),
    ("GET", "embed/odd"): lambda s, a: embed.odd(s.model(a, "embed"), a.listed("words")),
    ("POST", "compare/match"): _match,
    ("GET", "compare/neighbours"): _side_by_side,
    ("GET", "compare/moved"): _moved,
    ("GET", "jobs"): lambda s, a: {"jobs": s.jobs.listed()},
    ("POST", "jobs"): _start,
    **{("GET", f"verbs/{verb}"): _form(verb) for verb in forms.VERBS},
}
"""All places, by method and what follows /api/."""
