"""Errors in one grammar, and an import that does nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import eckart
from eckart import PCA, errors


def test_one_family():
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.InputTypeError, TypeError)
    assert issubclass(errors.InputTypeError, errors.InputError)
    assert issubclass(errors.FileError, ValueError)
    for kind in (errors.InputError, errors.FileError):
        assert issubclass(kind, errors.EckartError)


def test_what_a_value_must_be_what_it_is_and_what_to_do():
    error = errors.invalid("k", 9, "0 to 2", "lower it")
    assert str(error) == "k must be 0 to 2, got 9. Lower it."
    assert error.code == "invalid.k"
    assert str(errors.invalid("k", "x", "an int")) == "k must be an int, got 'x'"
    assert errors.invalid("--held-out", 2, "a share").code == "invalid.held_out"
    assert str(errors.invalid("k", 9, "0 to 2", "n_init=3 may do")).endswith(". n_init=3 may do.")


def test_codes_survive_another_process():
    """Each class has a code of its own; that of an instance crosses processes."""
    kinds = (errors.InputError, errors.InputTypeError, errors.FileError, errors.MissingError)
    assert len({kind.code for kind in kinds}) == len(kinds)
    again = pickle.loads(pickle.dumps(errors.invalid("k", 9, "0 to 2")))
    assert (again.code, str(again)) == ("invalid.k", "k must be 0 to 2, got 9")


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"n_components": 9}, "n_components"),
        ({"n_components": -1}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": "many"}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"n_components": [1]}, "n_components"),
        ({"n_components": float("nan")}, "n_components"),
        ({"svd_solver": "magic"}, "svd_solver"),
        ({"tol": -1}, "tol"),
        ({"tol": "x"}, "tol"),
        ({"whiten": "yes"}, "whiten"),
        ({"center": 1}, "center"),
        ({"rotation": "spin"}, "rotation"),
        ({"n_oversamples": 0}, "n_oversamples"),
        ({"iterated_power": -1}, "iterated_power"),
        ({"max_iter": 0}, "max_iter"),
        ({"random_state": "x"}, "random_state"),
        ({"random_state": -1}, "random_state"),
        ({"n_threads": 0}, "n_threads"),
    ],
)
def test_every_bad_parameter_is_named_with_its_value(params, name):
    model = PCA(**params)
    with pytest.raises(errors.InputError, match=f"^{name} must be .*, got"):
        model.fit(np.random.default_rng(0).standard_normal((20, 4)))
    assert "fit_" not in vars(model)
    assert model.get_params()[name] is params[name]


def test_importing_does_nothing():
    """No optional or heavy package, no environment variable, no warning filter, no handler."""
    code = """
import os, sys, warnings, logging
before = dict(os.environ), list(warnings.filters), list(logging.root.handlers)
import eckart
assert before == (dict(os.environ), list(warnings.filters), list(logging.root.handlers))
print(*[m for m in ("torch", "dask", "matplotlib", "numba", "sklearn", "scipy", "pandas", "polars", "pyarrow", "rich", "typer") if m in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
    assert out.stderr == ""


def test_public_names_are_all_there():
    for name in eckart.__all__:
        assert getattr(eckart, name) is not None
    assert set(eckart.__all__) <= set(dir(eckart))
    with pytest.raises(AttributeError, match="nothing"):
        _ = eckart.nothing
