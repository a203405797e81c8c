"""The course: lessons that run, exercises that are checked, notebooks that say the same."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import eckart
from eckart import InputError
from eckart.learn import (
    check,
    digits,
    lessons,
    photograph,
    solution,
    to_notebook,
    write_notebooks,
)
from eckart.learn.exercises import EXERCISES

LESSONS = lessons()
FILES = Path(eckart.__file__).parent / "learn" / "lessons"
named = pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)


def test_there_are_twenty_in_their_order():
    assert [lesson.number for lesson in LESSONS] == list(range(1, 21))
    assert len({lesson.title for lesson in LESSONS}) == 20


@named
def test_a_lesson_has_a_statement_a_picture_a_failure_and_exercises(lesson):
    text = lesson.source
    assert ast.get_docstring(ast.parse(text)).startswith(f"{lesson.number}. {lesson.title}\n")
    assert "math:" in text
    assert "What breaks" in text
    assert re.search(r"plt\.subplots|plots\.", text)
    asked = set(re.findall(r'check\("(\w+)"', text))
    assert asked == {f"{lesson.number}a", f"{lesson.number}b"}
    assert max(len(line) for line in text.splitlines()) <= 130


def test_every_exercise_belongs_to_a_lesson_and_knows_its_answer(capsys):
    assert set(EXERCISES) == {f"{n}{part}" for n in range(1, 21) for part in "ab"}
    for name, exercise in EXERCISES.items():
        assert check(name, exercise.answer)
        wrong = (
            "something else" if isinstance(exercise.answer, str) else np.add(exercise.answer, 17)
        )
        assert not check(name, wrong)
        assert exercise.why in solution(name)
    assert not check("1a", object())
    out = capsys.readouterr().out
    assert out.count("Right.") == 40
    assert out.count("Not yet.") == 41
    with pytest.raises(InputError, match="one of 1a"):
        check("99", 1)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 8, 18])
def test_a_lesson_runs_and_draws(number, monkeypatch, capsys):
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")
    file = next(FILES.glob(f"plot_{number:02d}_*.py"))
    runpy.run_path(str(file))
    assert plt.get_fignums()
    assert capsys.readouterr().out
    plt.close("all")


@named
def test_a_notebook_has_all_text_and_code_of_its_lesson(lesson):
    book = to_notebook(lesson.source)
    code = "\n".join(c["source"] for c in book["cells"] if c["cell_type"] == "code")
    text = "\n".join(c["source"] for c in book["cells"] if c["cell_type"] == "markdown")
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(lesson.source.partition('\n"""\n')[2]))
    assert text.startswith(f"# {lesson.number}. {lesson.title}")
    assert "## What breaks" in text
    for leftover in (":math:", ":doc:", ".. math", "``", "\n==="):
        assert leftover not in text, leftover
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


def test_notebooks_are_written_once(tmp_path):
    (first,) = write_notebooks(tmp_path / "new", [7])
    assert json.loads(first.read_text())["nbformat"] == 4
    first.write_text("mine")
    assert len(write_notebooks(tmp_path / "new")) == 19
    assert first.read_text() == "mine"
    with pytest.raises(InputError, match="1 to 20"):
        write_notebooks(tmp_path, [21])


def test_the_answers_are_those_of_the_data():
    """Exercises that need no long fit, answered as a reader would."""
    X, y = digits()
    shares = np.cumsum(eckart.PCA(64).fit(X).explained_variance_ratio_)
    assert check("1a", int(np.argmax(shares >= 0.9)) + 1)
    V, mean = eckart.PCA(2).fit(X).components_.T, X.mean(axis=0)
    risks = [
        0.5 * (eckart.Projection.onto(V, offset=at).distance(X) ** 2).mean() for at in (None, mean)
    ]
    assert check("1b", risks[0] - risks[1])
    planes = []
    for d in range(10):
        m = eckart.PCA(10).fit(X[:1400][y[:1400] == d])
        planes.append(eckart.Projection.onto(m.components_.T, offset=m.mean_).distance(X[1400:]))
    assert check("2a", np.mean(np.argmin(planes, axis=0) == y[1400:]))
    assert check("2b", eckart.Projection.onto((X - mean).T).rank)
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    assert check("3b", values[5:].sum() / 2)
    steps = eckart.power_method(np.cov(X.T, bias=True), k=1, tol=1e-5, random_state=0).iterations[0]
    assert check("4a", steps)
    photo = photograph()
    s = np.linalg.svd(photo, compute_uv=False)
    left = np.sqrt(np.cumsum((s**2)[::-1])[::-1] / (s**2).sum())
    assert check("7a", int(np.argmax(left < 0.1)))
    assert check("7b", s[20])
