"""Data that the tests share, and the folder of real data sets, which may be absent."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from sklearn.datasets import load_digits

from other_ways import add_options, in_blocks, pytest_configure  # noqa: F401 - a fixture and a hook of all tests

# a commit is judged on the same examples every time
settings.register_profile("same", derandomize=True)
# a process in the background of a shell leaves Ctrl-C unanswered, and so would all that tests start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# threads of PyTorch in two test processes share the cores
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not os.environ.get("EXPLORE"):
    settings.load_profile("same")

CASES = 12
"""Cases of one contract test in the suite: of a product of many parameters, so many evenly spread
ones; ``make test-slow`` runs each."""
CHECKS = 6
"""Checks of scikit-learn for a second and further form of a class: the first form runs all of
them."""

collect_ignore = ["service_hooks.py"]
"""Loaded by schemathesis alone, in an environment of its own."""

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption(
        "--every-case",
        action="store_true",
        help="also the cases of contract tests and checks that the suite leaves out",
    )
    add_options(parser)


def pytest_collection_modifyitems(config, items):
    """Leave out cases of long products, the same ones every time, so that the suite stays within
    its minutes."""
    if config.getoption("--every-case"):
        return
    groups: dict[str, list] = {}
    forms: dict[str, str] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if "tests/engines/" in name:
            groups.setdefault(name, []).append(item)
        elif name.endswith("test_scikit_learn_checks"):
            form = case.rpartition("-check_")[0]
            if forms.setdefault(form.partition("(")[0], form) != form:
                groups.setdefault(form, []).append(item)
    # whole stories on real data, seconds each
    left = {item for item in items if "docs/tutorial_" in item.nodeid}
    for name, group in groups.items():
        most = CASES if "tests/engines/" in name else CHECKS
        if len(group) > most:
            left |= set(group) - {group[i * len(group) // most] for i in range(most)}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def digits():
    return load_digits().data


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def shared_data():
    """A function from a folder name to its path; skips the test where the data are absent."""

    def folder(name: str) -> Path:
        if not (SHARED / name).is_dir():
            pytest.skip(f"real data set {name!r} is not on this machine")
        return SHARED / name

    return folder


@pytest.fixture
def eckart_(data, tmp_path, monkeypatch, capsys):
    """Run a command in a folder that holds the files of the module's ``data``; returns exit code,
    standard output and standard error."""
    from eckart.cli import main as entry

    for name in os.listdir(data):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["eckart", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            entry.run()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


@pytest.fixture
def done(eckart_):
    """Run a command that must succeed without a word on standard error; returns standard output."""

    def call(*words):
        code, out, err = eckart_(*words)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def ran(eckart_):
    """Run a command that must do its work, whatever its certificate says: the exit code is 1
    exactly where that does not hold."""

    def call(*words):
        code, out, err = eckart_(*words)
        assert err == ""
        assert code == ("DOES NOT HOLD" in out) or ("-q" in words and code in (0, 1))
        return out

    return call


@pytest.fixture
def refused(eckart_):
    """Run a command that must end with one line on standard error, exit code 2 and no file changed;
    returns the line."""

    def files():
        return {name: Path(name).read_bytes() for name in os.listdir(".") if Path(name).is_file()}

    def call(*words):
        before = files()
        code, _, err = eckart_(*words)
        assert code == 2, err
        assert err.startswith("eckart: error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert files() == before, "a refused command changed a file"
        return err

    return call


def planted(rng, rows=400, n=30, rank=5, noise=0.3, mean=2.0, dtype=np.float64):
    """Rows near a subspace of the given rank, with falling variances and a mean."""
    basis = np.linalg.qr(rng.standard_normal((n, rank)))[0]
    scale = 5.0 * 0.7 ** np.arange(rank)
    x = (
        rng.standard_normal((rows, rank)) * scale @ basis.T
        + noise * rng.standard_normal((rows, n))
        + mean
    )
    return x.astype(dtype)


sys.path.insert(0, str(Path(__file__).parent / "engines"))
from registry import ENGINES, SLOW  # noqa: E402


@pytest.fixture(params=[*ENGINES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def engine(request):
    """Each engine of the registry in turn."""
    return (ENGINES | SLOW)[request.param]
