"""Types as a user's type checker sees them: names of arguments, choices, fitted attributes."""

import ast
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import eckart

ROOT = Path(eckart.__file__).parents[2]
LINES = """import numpy as np
from eckart import ALS, LDA, PCA

PCA(n_componets=3)
PCA(2).nonexistent_
PCA(2, svd_solver="fastest")
codes: str = PCA(2).fit(np.eye(3)).transform(np.eye(3))
holds: str = PCA(2).certificate_.holds
LDA(3, learning_method="gibs")
first: int = PCA(2).components_
ALS(zeros="some")
fine = PCA(2, svd_solver="svd").fit_transform(np.eye(3)).shape[0] + len(LDA(3, learning_method="gibbs").components_)
"""


@pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the types are those of a checkout"
)
def test_a_type_checker_refuses_wrong_names_choices_and_types(tmp_path):
    """With the options and the cache of `make lint`, so that eckart itself is not checked once
    more."""
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(LINES)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "user.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = {
        int(line.split(":")[1])
        for line in run.stdout.splitlines()
        if "user.py:" in line and " error: " in line
    }
    assert found == set(range(4, 12)), run.stdout + run.stderr


def test_types_name_the_choices_that_the_rules_allow():
    """Where choices come from a table, the type repeats them: a line more in the table is a word
    more in the type."""
    for model in (getattr(eckart, name) for name in eckart.__all__):
        if not (inspect.isclass(model) and dataclasses.is_dataclass(model)):
            continue
        for f in dataclasses.fields(model):
            if not str(f.type).startswith("Literal["):
                continue
            inside = f.type.removesuffix(" | None")[8:-1]
            rule, choices = f.metadata.get("rule"), ast.literal_eval(f"[{inside}]")
            choices += [None] * f.type.endswith("| None")
            assert f.default in choices
            wanted = (
                {word.strip() for word in rule.wanted.replace(" or ", ", ").split(", ")}
                if rule
                else set()
            )
            assert not wanted or wanted <= set(map(repr, choices)), (model.__name__, f.name)
            assert rule is None or all(map(rule.fits, choices))
