"""The room of topics: their words and documents, a map of them, and names and groups that people
give them.

Names and groups are kept in the plan of the model file, beside the factors: ``{"names": {"3":
"sport"}, "merged": [[1, 4]]}`` with numbers from 1. The factors and their certificate stay as they
were fitted, so a merge can be undone. The words of a group of topics are the mean of theirs,
weighted by their sizes, p(w|group) = sum_z s_z p(w|z) / sum_z s_z; the share of a group in a
document is the sum of its topics' shares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.cli.counted_texts import is_text, texts_of
from eckart.io.models.save import load
from eckart.io.text.tokens import Tokenizer
from eckart.plots.topics import distributions, jensen_shannon, scaled
from eckart.report.topics import telling
from eckart.serve.problems import Problem
from eckart.studio.library import Library
from eckart.studio.opened import Opened, OpenedRows, run_verb
from eckart.studio.places import codes_of
from eckart.studio.tables import cell

MOST_NAME = 100
"""Characters of a name."""
EXCERPT = 240
LONGEST_TEXT = 30_000
"""Characters of a document that are sent."""
RUNS = re.compile(r"[^\W_]+(?:['’_·][^\W_]+)*")
"""Runs of letters and digits, as the usual tokenizer finds them; each is given to the tokenizer of
the model."""


@dataclass(frozen=True)
class Group:
    """One topic, or several that were merged; ``members`` are positions, the first one gives the
    number."""

    members: tuple[int, ...]
    name: str | None
    word: str

    @property
    def number(self) -> int:
        return self.members[0] + 1

    @property
    def title(self) -> str:
        return self.name or f"{self.word} {self.number}"


def groups_of(opened: Opened) -> list[Group]:
    """The topics as people grouped and named them; what a file holds that cannot be such a grouping
    is passed over."""
    k = int(opened.factors.k)
    word = "topic" if opened.room == "topics" else "part"
    names, merged = _kept(opened.plan.get("topics"), k)
    first = {z: group for group in merged for z in group}
    groups = []
    for z in range(k):
        group = first.get(z, (z,))
        if group[0] == z:
            groups.append(Group(group, names.get(z), word))
    return groups


def _kept(plan: Any, k: int) -> tuple[dict[int, str], list[tuple[int, ...]]]:
    if not isinstance(plan, dict):
        return {}, []
    names: dict[int, str] = {}
    given = plan.get("names")
    for number, name in given.items() if isinstance(given, dict) else ():
        if (
            str(number).isdigit()
            and 1 <= int(number) <= k
            and isinstance(name, str)
            and 0 < len(name) <= MOST_NAME
        ):
            names[int(number) - 1] = name
    merged: list[tuple[int, ...]] = []
    taken: set[int] = set()
    lists = plan.get("merged")
    for group in lists if isinstance(lists, list) else ():
        fits = (
            isinstance(group, list)
            and len(group) > 1
            and all(type(z) is int and 1 <= z <= k for z in group)
        )
        members = sorted({z - 1 for z in group}) if fits else []
        if len(members) > 1 and not taken & set(members):
            taken |= set(members)
            merged.append(tuple(members))
    return names, merged


def grouped_shares(shares: np.ndarray, groups: list[Group]) -> np.ndarray:
    """Shares of groups: sums over their topics."""
    return np.column_stack([shares[:, list(g.members)].sum(axis=1) for g in groups])


def grouped_words(opened: Opened) -> tuple[list[Group], np.ndarray, np.ndarray, np.ndarray]:
    """Groups, their p(w|group), their sizes and the words; kept, since every question needs
    them."""

    def make() -> Any:
        p, sizes, names = distributions(opened.model)
        groups = groups_of(opened)
        own = np.array([sizes[list(g.members)].sum() for g in groups])
        rows = []
        for g in groups:
            at = list(g.members)
            weight = sizes[at] if sizes[at].sum() > 0 else np.ones(len(at))
            rows.append(weight @ p[at] / weight.sum())
        return groups, np.array(rows), own, names

    return opened.kept.get("grouped words", make)


def listed(opened: Opened, words: int) -> dict[str, Any]:
    """All topics with their words, and where they stand in the plane."""
    groups, p, sizes, names = grouped_words(opened)
    xy, kept = opened.kept.get(
        "topic map", lambda: scaled(jensen_shannon(p)) if len(p) > 1 else (np.zeros((1, 2)), 1.0)
    )
    topics = []
    for z, g in enumerate(groups):
        best, own = np.argsort(-p[z], kind="stable")[:words], telling(p, sizes, z)[:words]
        topics.append(
            {
                "number": g.number,
                "name": g.name,
                "title": g.title,
                "members": [m + 1 for m in g.members],
                "share": float(sizes[z]),
                "x": float(xy[z, 0]),
                "y": float(xy[z, 1]),
                "words": [{"word": str(names[j]), "p": float(p[z, j])} for j in best],
                "telling": [{"word": str(names[j]), "p": float(p[z, j])} for j in own],
            }
        )
    rows = opened.plan.get("documents")
    kind = "topics" if opened.room == "topics" else "parts"
    return {
        "kind": kind,
        "topics": topics,
        "kept": float(kept),
        "documents": rows if isinstance(rows, int) else None,
    }


def words(opened: Opened, number: int, n: int, balance: float) -> dict[str, Any]:
    """The words of a topic by relevance: balance log p(w|z) + (1 - balance) log p(w|z) / p(w)."""
    groups, p, sizes, names = grouped_words(opened)
    z = _place(groups, number)
    overall = sizes @ p
    order = telling(p, sizes, z, balance)[:n]
    return {
        "number": number,
        "words": [
            {
                "word": str(names[j]),
                "p": float(p[z, j]),
                "overall": float(overall[j]),
                "lift": float(p[z, j] / overall[j]) if overall[j] > 0 else None,
                "of_word": float(sizes[z] * p[z, j] / overall[j]) if overall[j] > 0 else None,
            }
            for j in order
        ],
    }


def word(opened: Opened, text: str) -> dict[str, Any]:
    """In which topics a word stands: p(z|w) = s_z p(w|z) / p(w)."""
    groups, p, sizes, names = grouped_words(opened)
    at = opened.kept.get("words at", lambda: {str(name): j for j, name in enumerate(names)}).get(
        text
    )
    if at is None:
        raise Problem(
            422,
            f"word={text[:80]!r} came, which is not among the {len(names):,} words of the model",
        )
    weight = sizes * p[:, at]
    share = weight / (weight.sum() or 1.0)
    order = np.argsort(-share, kind="stable")
    return {
        "word": text,
        "topics": [
            {
                "number": groups[z].number,
                "name": groups[z].name,
                "title": groups[z].title,
                "p_topic": float(share[z]),
            }
            for z in order[:20]
        ],
    }


def documents(
    opened: Opened, rows: OpenedRows, number: int, n: int, folder_path: Any
) -> dict[str, Any]:
    """The documents with the largest share of a topic, with their beginnings."""
    groups = groups_of(opened)
    z = _place(groups, number)
    share = _shares(opened, rows, groups)[:, z]
    order = np.argsort(-share, kind="stable")[:n]
    texts = _texts(rows, order, folder_path)
    return {
        "number": number,
        "documents": [
            {
                "at": int(i),
                "id": cell(rows.id_of(int(i))),
                "share": float(share[i]),
                "excerpt": _short(texts.get(int(i))),
            }
            for i in order
        ],
    }


def document(opened: Opened, rows: OpenedRows, i: int, folder_path: Any) -> dict[str, Any]:
    """A document with the topic of each of its words: the largest of p(z|d) p(w|z)."""
    groups, p, _, names = grouped_words(opened)
    share = _shares(opened, rows, groups)[i]
    order = np.argsort(-share, kind="stable")
    shares = [
        {
            "number": groups[z].number,
            "name": groups[z].name,
            "title": groups[z].title,
            "share": float(share[z]),
        }
        for z in order
        if share[z] > 1e-4
    ]
    text = _texts(rows, np.array([i]), folder_path).get(i)
    at = opened.kept.get("words at", lambda: {str(name): j for j, name in enumerate(names)})
    runs = (
        _counted(rows, i, names)
        if text is None
        else _coloured(text[:LONGEST_TEXT], _tokenizer(opened))
    )
    out: list[dict[str, Any]] = []
    for piece, found in runs:
        j = at.get(found) if found is not None else None
        if j is None:
            out.append({"text": piece, "word": None, "number": None, "p": None})
            continue
        weight = share * p[:, j]
        z, total = int(np.argmax(weight)), float(weight.sum())
        out.append(
            {
                "text": piece,
                "word": found,
                "number": groups[z].number,
                "p": float(weight[z] / total) if total > 0 else None,
            }
        )
    return {
        "at": i,
        "id": cell(rows.id_of(i)),
        "shares": shares,
        "text": out,
        "truncated": text is not None and len(text) > LONGEST_TEXT,
        "from_counts": text is None,
    }


def _shares(opened: Opened, rows: OpenedRows, groups: list[Group]) -> np.ndarray:
    shares = codes_of(opened, rows)
    if opened.room == "parts":
        weight = shares * np.asarray(opened.model.components_, np.float64).sum(axis=1)
        shares = weight / np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return grouped_shares(shares, groups)


def _tokenizer(opened: Opened) -> Any:
    kept = opened.plan.get("text")
    rules = kept.get("rules") if isinstance(kept, dict) else None
    return run_verb(Tokenizer.from_dict, rules if isinstance(rules, dict) else {})


def _coloured(text: str, tokenizer: Any) -> list[tuple[str, str | None]]:
    """The text in runs; each word with what the model calls it."""
    runs = [(m.start(), m.end()) for m in RUNS.finditer(text)]
    different = sorted({text[a:b] for a, b in runs})
    batch = tokenizer.batch(different) if different else None
    called: dict[str, str | None] = {}
    if batch is not None:
        decoded = batch.words.decode()
        for d, run in enumerate(different):
            ids = batch.ids[batch.pointers[d] : batch.pointers[d + 1]]
            called[run] = decoded[ids[0]] if len(ids) == 1 else None
    out: list[tuple[str, str | None]] = []
    end = 0
    for a, b in runs:
        if a > end:
            out.append((text[end:a], None))
        out.append((text[a:b], called[text[a:b]]))
        end = b
    return out + ([(text[end:], None)] if end < len(text) else [])


def _counted(rows: OpenedRows, i: int, names: np.ndarray) -> list[tuple[str, str | None]]:
    """Where only counts are there: the words that occur, the most frequent first."""
    part = rows.matrix.to_scipy()[[i]] if hasattr(rows.matrix, "to_scipy") else None
    if part is None:
        values = rows.dense([i])[0]
        at = np.flatnonzero(values > 0)
        counts = values[at]
    else:
        at, counts = part.indices, part.data
    order = np.argsort(-counts, kind="stable")[:200]
    out: list[tuple[str, str | None]] = []
    for p in order.tolist():
        name = str(names[at[p]])
        out += [(name, name), (f" ×{counts[p]:g} " if counts[p] != 1 else " ", None)]
    return out


def _texts(rows: OpenedRows, at: np.ndarray, path: Any) -> dict[int, str]:
    """The texts of some documents, where the file holds text."""
    if not is_text(str(path), rows.reading):
        return {}
    return run_verb(texts_of, str(path), rows.reading, at)


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    flat = " ".join(text[: 4 * EXCERPT].split())
    return flat if len(flat) <= EXCERPT else flat[: EXCERPT - 1] + "…"


def _place(groups: list[Group], number: Any) -> int:
    for z, g in enumerate(groups):
        if g.number == number:
            return z
    raise Problem(
        422,
        f"number must be one of {', '.join(str(g.number) for g in groups[:40])}, got "
        f"{str(number)[:40]}",
    )


def rename(library: Library, opened: Opened, number: Any, name: Any) -> Opened:
    """Give a topic a name, or take it away (None)."""
    group = groups_of(opened)[_place(groups_of(opened), number)]
    if name is not None and (
        not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME
    ):
        raise Problem(
            422,
            f"name must be a text of up to {MOST_NAME} characters, or null for none, got "
            f"{str(name)[:80]!r}",
        )
    names, merged = _kept(opened.plan.get("topics"), int(opened.factors.k))
    names.pop(group.members[0], None)
    if name is not None:
        names[group.members[0]] = " ".join(name.split())
    return _write(library, opened, names, merged)


def merge(library: Library, opened: Opened, numbers: Any, name: Any) -> Opened:
    """Make one topic of several."""
    groups = groups_of(opened)
    if not isinstance(numbers, list) or len(numbers) < 2:
        raise Problem(422, f"numbers must be at least two topics, got {str(numbers)[:80]}")
    places = sorted({_place(groups, number) for number in numbers})
    if len(places) < 2:
        raise Problem(
            422, f"numbers must be at least two different topics, got {str(numbers)[:80]}"
        )
    members = tuple(sorted(z for place in places for z in groups[place].members))
    names, merged = _kept(opened.plan.get("topics"), int(opened.factors.k))
    merged = [m for m in merged if not set(m) & set(members)] + [members]
    kept_name = next((groups[place].name for place in places if groups[place].name), None)
    for z in members:
        names.pop(z, None)
    if kept_name:
        names[members[0]] = kept_name
    opened = _write(library, opened, names, merged)
    return opened if name is None else rename(library, opened, members[0] + 1, name)


def split(library: Library, opened: Opened, number: Any) -> Opened:
    """Undo a merge."""
    group = groups_of(opened)[_place(groups_of(opened), number)]
    if len(group.members) == 1:
        raise Problem(
            422, f"topic {number} must be one that holds several, got one that was not merged"
        )
    names, merged = _kept(opened.plan.get("topics"), int(opened.factors.k))
    return _write(library, opened, names, [m for m in merged if m != group.members])


def _write(
    library: Library, opened: Opened, names: dict[int, str], merged: list[tuple[int, ...]]
) -> Opened:
    """The model file with other names and groups, in one step; all else in it keeps its bits."""
    kept: dict[str, Any] = {
        "names": {str(z + 1): name for z, name in sorted(names.items())},
        "merged": [[z + 1 for z in m] for m in sorted(merged)],
    }
    with library.writing:
        if library.model(opened.file).mark != opened.mark:
            raise Problem(409, f"{opened.file} was changed meanwhile; look at it again first")
        model = run_verb(load, opened.path)
        if names or merged:
            model.fit_.plan["topics"] = kept
        else:
            model.fit_.plan.pop("topics", None)
        run_verb(model.save, opened.path)
    return library.model(opened.file)
