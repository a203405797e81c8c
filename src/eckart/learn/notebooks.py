"""Lessons as notebooks: a lesson is a Python file whose comments under ``# %%`` are its text."""

from __future__ import annotations

import ast
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from eckart.errors import invalid
from eckart.io.models.whole_files import atomic_write


class Lesson(NamedTuple):
    """A lesson: its number, its title and the text of its file."""

    number: int
    name: str
    title: str
    source: str


def lessons() -> list[Lesson]:
    """All lessons in their order.

    >>> lessons()[0].title
    'What is lost when 64 numbers become 2?'
    """
    found = []
    for file in resources.files("eckart.learn").joinpath("lessons").iterdir():
        match = re.fullmatch(r"plot_(\d+)_(\w+)\.py", file.name)
        if match:
            source = file.read_text(encoding="utf-8")
            title = str(ast.get_docstring(ast.parse(source))).partition("\n")[0]
            found.append(Lesson(int(match[1]), match[2], title.partition(". ")[2], source))
    return sorted(found)


def to_notebook(source: str) -> dict[str, Any]:
    """The text of a lesson in the format of Jupyter: its text as Markdown, its code as code."""
    text, _, rest = source.partition('"""\n' if source.startswith(('r"""\n', '"""\n')) else "\0")
    text, _, rest = rest.partition('\n"""\n')
    cells = [_text_cell(text)]
    for block in re.split(r"^# %%\n", rest, flags=re.M):
        lines = block.strip("\n").split("\n")
        count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        words = "\n".join(line[2:] for line in lines[:count])
        code = "\n".join(lines[count:]).strip("\n")
        cells += [_text_cell(words)] if words else []
        cells += [_cell("code", code)] if code else []
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(folder: Path, chosen: list[int] | None = None) -> list[Path]:
    """Write lessons as notebooks into a folder, all of them or those of these numbers; a file that
    is there already is left alone."""
    known = {lesson.number: lesson for lesson in lessons()}
    for number in chosen or ():
        if number not in known:
            raise invalid("lesson", number, f"a number of {min(known)} to {max(known)}")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number in chosen or known:
        path = folder / f"{number:02d}_{known[number].name}.ipynb"
        if not path.exists():
            atomic_write(path, json.dumps(to_notebook(known[number].source), indent=1).encode())
            written.append(path)
    return written


def _cell(kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


def _text_cell(text: str) -> dict[str, Any]:
    """reStructuredText as the Markdown of notebooks: titles, formulas, code and links."""
    text = re.sub(r"^(.+)\n=+$", r"# \1", text.strip("\n"), flags=re.M)
    text = re.sub(r"^(.+)\n-+$", r"## \1", text, flags=re.M)
    text = re.sub(r"^\.\. math:: (.+)$", r"$$\1$$", text, flags=re.M)
    text = re.sub(
        r"^\.\. math::\n\n((?:   .*\n?|\n(?=   ))+)",
        lambda m: "$$\n" + re.sub(r"^   ", "", m[1], flags=re.M).rstrip() + "\n$$\n",
        text,
        flags=re.M,
    )
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r":doc:`plot_(\d+)_\w+`", lambda m: f"lesson {int(m[1])}", text)
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return _cell("markdown", text.replace("``", "`"))
