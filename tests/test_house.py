"""The house: what importing does, which room may call which, what a plan says."""

from __future__ import annotations

import ast
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import eckart
from code_faults import SOURCE
from eckart import PCA
from eckart.engines import available_memory
from eckart.io.read import read
from eckart.reduce.plan import choose, costs, require_memory
from eckart.scheduler import resolve_threads, run_lanes, single_threaded_blas
from mutants import KNOWN

HEAVY = ("torch", "dask", "matplotlib", "numba", "sklearn", "scipy", "pandas", "polars", "pyarrow")


@pytest.mark.parametrize("fault", KNOWN)
def test_faults_that_no_test_can_find_stand_in_the_code(fault):
    file, _, rest = fault.partition(" ")
    assert rest.partition(": ")[2] in ast.unparse(ast.parse((SOURCE / file).read_text()))


def test_importing_does_nothing():
    code = f"import sys, eckart; print([m for m in {HEAVY!r} if m in sys.modules]); eckart.Dense"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_dense_pca_needs_no_compiler():
    code = (
        "import sys, numpy as np, eckart; eckart.PCA(2).fit(np.random.rand(300, 20)); "
        "print('numba' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_every_public_name_exists_and_is_documented():
    for name in eckart.__all__:
        thing = getattr(eckart, name)
        assert name == "__version__" or (thing.__doc__ and len(thing.__doc__) > 30), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        eckart.nothing  # noqa: B018
    assert set(dir(eckart)) == set(eckart.__all__)


def test_every_public_name_has_a_doctest():
    import doctest

    finder = doctest.DocTestFinder()
    for name in set(eckart.__all__) - {"__version__", "FileError"}:
        thing = getattr(eckart, name)
        examples = [e for t in finder.find(thing, name) for e in t.examples]
        assert examples, f"{name} has no doctest"


def test_what_is_loaded_at_its_first_use_exists_and_is_of_the_same_room():
    """import-linter does not see such names."""
    import re
    from pathlib import Path

    home, seen = Path(eckart.__file__).parent, 0
    for path in home.rglob("*/**/*.py"):
        room = path.relative_to(home).parts[0]
        for told in re.findall(r"= (?:lazy|later)\(\"([\w.]+)\"", path.read_text()):
            name = told if told.startswith("eckart") else f"eckart.engines.cpu.{told}"
            seen += 1
            assert home.parent.joinpath(*name.split(".")).with_suffix(".py").is_file(), name
            assert (room, name.split(".")[1]) in {(room, room), ("reduce", "nn")}, (path, name)
    assert seen > 40


def test_imports_go_one_way():
    from importlinter.cli import lint_imports_command

    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])",
        ],
        capture_output=True,
        text=True,
    )
    assert lint_imports_command is not None
    assert result.returncode == 0, result.stdout


def test_plan_names_cost_and_reason(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2000, 300), np.float32))
    plan = choose(read(tmp_path / "x.npy"), 5, "auto")
    assert plan.solver == "eigh"
    assert plan.passes == 1
    assert 0 < plan.memory < 2**30
    assert plan.seconds > 0
    assert set(costs(read(tmp_path / "x.npy"), 5)) == {
        "eigh",
        "svd",
        "power",
        "randomized",
        "lanczos",
        "gradient",
    }
    with pytest.raises(eckart.InputError, match=r"GiB beyond the data.*randomized"):
        require_memory(plan, 1000.0)
    assert available_memory() > 0


def test_a_problem_too_large_for_memory_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr("eckart.reduce.solve.available_memory", lambda: 1e5)
    with pytest.raises(eckart.InputError, match="choose svd_solver='randomized'"):
        PCA(5, svd_solver="svd").fit(np.zeros((2000, 500)))
    assert (
        PCA(5, svd_solver="randomized")
        .fit(sparse.random(2000, 500, 0.01, random_state=0))
        .n_components_
        == 5
    )


def test_lanes_keep_their_order_and_errors_come_out():
    for threads in (1, 4):
        lanes = [[] for _ in range(3)]
        run_lanes(range(30), lanes, lambda lane, item, scratch: lane.append(item), threads)
        assert lanes == [list(range(i, 30, 3)) for i in range(3)]
        with pytest.raises(ZeroDivisionError):
            run_lanes(range(5), lanes, lambda lane, item, scratch: 1 // (item - 3), threads)


def test_blas_limit_nests_and_is_restored():
    from threadpoolctl import threadpool_info

    def counts():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = counts()
    with single_threaded_blas():
        with single_threaded_blas():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == before


def test_thread_counts_are_checked():
    assert resolve_threads(3) == 3
    assert resolve_threads(None) >= 1
    for bad in (0, -1, 1.5, True, "two"):
        with pytest.raises(eckart.InputError, match="n_threads"):
            resolve_threads(bad)


def test_progress_is_shown_when_asked(capfd, rng):
    x = rng.standard_normal((200, 30))
    PCA(2, svd_solver="power", random_state=0).fit(x)
    assert capfd.readouterr() == ("", "")
    PCA(2, verbose=True, svd_solver="power", random_state=0).fit(
        x
    )  # standard error is no terminal here: lines, as scikit-learn prints them
    assert "components: 2 of 2\n" in capfd.readouterr().out
