"""Every argument of every verb and of every public function, given nonsense: an answer, or one
error of ours. Never an error of NumPy or Python.

What was found by trying 60 values on all of them is kept small here: the values that once got
through to NumPy. ``None``, texts, arrays of no, one and three dimensions, objects, and numbers that
no machine counts; flags and counts of a wrong type are refused by the annotation beside them
(``arguments``).
"""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from functools import cache

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import eckart
import eckart.metrics
from eckart.arguments import held, hold, rule_of
from eckart.errors import EckartError
from resumable_fits import counts, holes, parts
from test_manners import KINDS, SMALL, given

NONSENSE = [
    "x",
    "a\0b",
    "é" * 300,
    -1,
    2.5,
    float("nan"),
    {},
    object(),
    10**400,
    10**5000,
    np.array(3),
    np.array([1.0, 2.0]),
    b"",
    np.zeros((0, 0)),
    np.zeros((2, 2, 2)),
    [["a", "b"]],
    [None],
    np.full((2, 20), 1e300),
]
OWN = {
    "get_params",
    "set_params",
    "get_metadata_routing",
    "set_output",
    "get_feature_names_out",
    "save",
    "restore",
    "extra_state",
}
"""Names, and those of the file format, which have tests of their own; what scikit-learn brings is
its own matter, too."""
GOOD = {"rows": 0, "columns": 0, "row": 0, "column": 0}


@cache
def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SMALL[name][0]().fit(*given(name))


def verbs(name):
    for verb in dir(KINDS[name]):
        found = inspect.getattr_static(KINDS[name], verb)
        if (
            verb.startswith(("_", "set_"))
            or verb in OWN
            or not inspect.isfunction(found)
            or found.__module__.startswith("sklearn")
        ):
            continue
        for argument in inspect.signature(getattr(KINDS[name], verb)).parameters.values():
            if (
                argument.name not in ("self", "path", "checkpoint")
                and argument.kind < argument.VAR_KEYWORD != argument.VAR_POSITIONAL
            ):
                yield verb, argument.name


def tried(call, *args, **named):
    """Done, or refused by us."""
    try:
        found = call(*args, **named)
        if hasattr(found, "__next__"):
            next(found, None)
    except (EckartError, NotFittedError):
        pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_verbs_take_nonsense_or_refuse_it_in_words(name):
    if (
        name in ("Autoencoder", "ConvAutoencoder", "NetworkClassifier", "NetworkRegressor")
        and importlib.util.find_spec("torch") is None
    ):
        pytest.skip("torch is not installed")
    data = dict(zip(("X", "y"), given(name)))
    asked = list(verbs(name))
    assert len({verb for verb, _ in asked}) > 2  # fit, and what the model is for
    for at, (verb, argument) in enumerate(asked):
        fits = verb.startswith(("fit", "partial_fit", "update", "complete"))
        model = fitted(name)
        wanted = inspect.signature(getattr(model, verb)).parameters.values()
        needed = {
            p.name: data.get(p.name, GOOD.get(p.name, 0))
            for p in wanted
            if p.default is p.empty and p.kind < p.VAR_KEYWORD
        }
        needed.pop("args", None)
        # each argument meets some of the values, all values in turn: a hundred arguments of a class
        # share them
        for value in NONSENSE[at % 5 :: 5]:
            tried(getattr(SMALL[name][0]() if fits else model, verb), **needed | {argument: value})


SPARSE = sparse.eye(3).tocsr()
WORDS = eckart.Vectors(["a", "b", "c", "d"], np.eye(4)[:, :3])
FUNCTIONS = {
    "principal_angles": (np.eye(3)[:, :2], np.eye(3)[:, 1:]),
    "subspace_distance": (np.eye(3)[:, :2], np.eye(3)[:, 1:]),
    "power_method": (parts().T @ parts(),),
    "select_components": (parts(),),
    "recovery": (holes(), 2),
    "tune": (holes(),),
    "compare": (parts(),),
    "randomized_svd": (parts(), 2),
    "non_negative_factorization": (parts(),),
    "normalise": (eckart.Observed.from_nan(holes()),),
    "split": (eckart.Observed.from_nan(holes()),),
    "folds": (eckart.Observed.from_nan(holes()),),
    "select_mixture": (parts()[:, :3], (1,), ("diag",)),
    "select_rank": (parts(), (1, 2)),
    "observed": (holes(),),
    "corpus": (["a b", "c d"],),
    "document_completion": (np.full((2, 20), 0.05), counts(), counts()),
    "split_tokens": (counts(),),
    "coherence": ([[0, 1]], counts()),
    "topic_diversity": (np.full((2, 20), 0.05),),
    "align_topics": (np.full((2, 20), 0.05), np.full((2, 20), 0.05)),
    "shards": ("*.nothing",),
    "write_shards": ([SPARSE], "."),
    "sequences": ([["a", "b"]],),
    "cooccurrence": ([["a", "b"]],),
    "read": (holes(),),
    "load": ("nothing",),
    "read_vectors": ("nothing",),
    "Vectors": (["a"], [[1.0]]),
    "Projection": (np.eye(3)[:, :2],),
    "LowRank": (np.ones((4, 2)), np.ones((3, 2))),
    "Dense": (np.ones((2, 2)),),
    "Observed": (np.array([0, 1]), np.array([0]), np.ones(1), 2),
    "Counts": (np.array([0, 1]), np.array([0]), np.ones(1), 2),
    "metrics.rmse": (np.ones(3), np.ones(3)),
    "metrics.mae": (np.ones(3), np.ones(3)),
    "metrics.ndcg_at_k": ([[0, 1]], [[0]]),
    "metrics.ranking": ([[0, 1]], [[0]]),
    "metrics.coverage_at_k": ([[0, 1]], 3),
    "metrics.bootstrap_interval": (np.arange(5.0),),
    "metrics.word_similarity": (WORDS, [("a", "b", 1.0), ("c", "d", 2.0), ("a", "c", 0.0)]),
    "metrics.analogies": (WORDS, [("a", "b", "c", "d")]),
}
LEFT_OUT = {
    "power_iterations": "so many are done",
    "verbose": "prints",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_nonsense_or_refuse_it_in_words(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = eckart
    for part in name.split("."):
        call = getattr(call, part)
    arguments = [
        p
        for p in inspect.signature(call).parameters.values()
        if p.kind < p.VAR_KEYWORD and p.name not in LEFT_OUT
    ]
    usual = dict(zip([p.name for p in arguments], FUNCTIONS[name]))
    tried(call, **usual)
    for argument in arguments:
        for value in NONSENSE:
            tried(call, **usual | {argument.name: value})


def test_a_seed_of_any_size_is_one(monkeypatch):
    from eckart.io.models.checkpoint import parameters_of

    told = [
        parameters_of(eckart.PCA(2, random_state=seed), ())["random_state"]
        for seed in (3, 10**5000, 10**5000 + 1)
    ]
    assert told[0] == "3"
    assert len(set(told)) == 3


def test_every_public_function_is_asked():
    functions = {name for name in eckart.__all__ if inspect.isfunction(getattr(eckart, name))}
    # these need nothing, a page, a file, a fit; their own tests refuse for them
    apart = {"show_versions", "view", "export_vectors", "recovery_certificate", "select_topics"}
    assert functions - apart <= set(FUNCTIONS)


def test_annotations_are_rules():
    assert rule_of("int | None").fits(None)
    assert rule_of("int | None").fits(np.int8(3))
    assert not rule_of("int").fits(True)
    assert not rule_of("int").fits(2**63)
    assert not rule_of("bool").fits(np.ones(2))
    assert rule_of("float").fits(2)
    assert rule_of("str | Sequence[str]").fits(["a"])
    assert not rule_of("Sequence[int]").fits([1, "a"])
    assert not rule_of("Sequence[int]").fits(np.ones((2, 2), int))
    assert rule_of("Any") is None
    assert rule_of("int | np.ndarray") is None


def test_defaults_pass_whatever_they_are():
    """A default is the author's word: ``n: int = None`` may be left out, and passed on as it is."""

    @held
    def verb(a, n: int = None, *, by: str = "x"):  # noqa: RUF013
        return a, n, by

    assert verb(1) == (1, None, "x")
    assert verb(1, None, by="y") == (1, None, "y")
    with pytest.raises(eckart.InputError, match="n must be an int, got 'a'"):
        verb(1, "a")
    with pytest.raises(eckart.InputError, match="by must be a text, got 3"):
        verb(1, by=3)


def test_a_verb_of_a_parent_is_held_once():
    class Parent:
        def verb(self, n: int = 1):
            return n

        def _own(self, n: int = 1):
            return n

    Parent.__module__ = "eckart.none"

    @hold
    class Child(Parent):
        pass

    first = Parent.verb
    hold(Child)
    assert Parent.verb is first
    with pytest.raises(eckart.InputError, match="n must be an int, got 'a'"):
        Child().verb("a")
    assert Child()._own("a") == "a"
    assert inspect.signature(Child.verb) == inspect.signature(lambda self, n=1: n).replace(
        parameters=inspect.signature(first).parameters.values()
    )
