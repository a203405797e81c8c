"""The manners of scikit-learn, asked of every public estimator: one that is added without them
fails here.

Not fitted says so in every verb; the global seed counts where no other is given; what was fitted
cannot be changed in silence; ``verbose`` prints; a fit that was stopped by ``max_iter`` warns.
"""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import eckart
from resumable_fits import FITS, counts, fitted, groups, holes, noise, of, parts, words


def estimators():
    kinds = (getattr(eckart, name) for name in eckart.__all__)
    return {
        kind.__name__: kind
        for kind in kinds
        if inspect.isclass(kind) and hasattr(kind, "get_params")
    }


def network(kind, *args, **options):
    return of(kind, *args, hidden=[4], max_iter=2, **options)


KINDS = estimators()
NETWORKS = {
    "Autoencoder": (network(eckart.Autoencoder, 2), parts),
    "ConvAutoencoder": (of(eckart.ConvAutoencoder, 2, image=(4, 5), max_iter=2), parts),
    "NetworkClassifier": (network(eckart.NetworkClassifier), lambda: (parts(), parts()[:, 0] > 1)),
    "NetworkRegressor": (network(eckart.NetworkRegressor), lambda: (parts(), parts()[:, 0])),
}
SMALL = {type(make()).__name__: (make, data) for make, data in reversed(FITS.values())}
SMALL |= NETWORKS | {
    "EASE": (of(eckart.EASE, l2=1.0), parts),
    "Blend": (of(eckart.Blend, {"ease": eckart.EASE(l2=1.0)}), parts),
}


def test_every_estimator_is_asked():
    assert set(SMALL) == set(KINDS)


@pytest.fixture(params=KINDS)
def name(request):
    if request.param in NETWORKS and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    return request.param


def given(name):
    data = SMALL[name][1]()
    return data if isinstance(data, tuple) else (data,)


def fit(name, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SMALL[name][0](**more).fit(*given(name))


@cache
def fitted_once(name):
    return fit(name)


NO_VERBS = {"fit", "get_params", "set_params", "get_metadata_routing", "set_output", "ridge_for"}
"""Methods that need no fit, those of the file format (``extra_state``, ``restore``) aside."""
FITTING = ("fit_", "partial_fit", "complete", "set_", "extra_state", "restore")
"""How names of methods begin that fit, or take what is asked of them later."""
ARGUMENTS = {
    "X": parts,
    "y": lambda: parts()[:, 0],
    "rows": lambda: 0,
    "columns": lambda: 0,
    "row": lambda: 0,
    "column": lambda: 0,
    "path": lambda: "no",
}


def test_every_verb_of_a_model_that_is_not_fitted_says_so(name):
    kind, asked = KINDS[name], 0
    for verb, thing in inspect.getmembers(kind):
        static = inspect.getattr_static(kind, verb)
        if (
            verb.startswith("_")
            or verb in NO_VERBS
            or verb.startswith(FITTING)
            or isinstance(static, (classmethod, staticmethod))
        ):
            continue
        model = kind()
        if isinstance(static, property):
            with pytest.raises(NotFittedError):
                getattr(model, verb)
            asked += 1
        elif callable(thing) and hasattr(model, verb):
            wanted = inspect.signature(getattr(model, verb)).parameters
            needed = [
                p.name
                for p in wanted.values()
                if p.default is p.empty and p.kind < p.VAR_KEYWORD and p.kind != p.VAR_POSITIONAL
            ]
            needed = needed or [n for n in ("X", "rows") if n in wanted][:1]
            typed = {
                n: {"int": 1, "float": 0.5, "str": "x", "bool": True}.get(str(wanted[n].annotation))
                for n in needed
            }
            with pytest.raises(NotFittedError):
                getattr(model, verb)(
                    **{
                        n: ARGUMENTS.get(n, parts)() if typed[n] is None else typed[n]
                        for n in needed
                    }
                )
            asked += 1
    assert asked > 3


def test_the_global_seed_counts_where_no_other_is_given(name):
    found = []
    for seed in (3, 3):
        np.random.seed(seed)  # noqa: NPY002
        found.append(fitted(fit(name, random_state=None))[0])
    assert found[0] == found[1]


CHANCE = ["SkipGram", "ALS", "BayesianMF", "LDA", "GaussianMixture", "LinearAutoencoder"]


@pytest.mark.parametrize("kind", CHANCE)
def test_another_global_seed_is_another_fit(kind):
    found = []
    for seed in (3, 4):
        np.random.seed(seed)  # noqa: NPY002
        found.append(fitted(fit(kind, random_state=None))[0])
    assert found[0] != found[1]


def test_what_was_fitted_cannot_be_changed_in_silence(name):
    model, arrays = fitted_once(name), 0
    for attribute in dir(model):
        if not attribute.endswith("_") or attribute.startswith("_"):
            continue
        try:
            value = getattr(model, attribute)
        except AttributeError:
            continue
        if isinstance(value, np.ndarray) and value.size:
            with pytest.raises(ValueError, match="read-only"):
                value.flat[0] = value.flat[0]
            arrays += 1
        static = inspect.getattr_static(type(model), attribute, None)
        if isinstance(static, property) and static.fset is None:
            with pytest.raises(AttributeError, match="cannot be set"):
                setattr(model, attribute, value)
    assert arrays or name in (
        "EASE",
        "SLIM",
        "SpectralFilter",
        "Blend",
        "MixedTable",
        "TimeFactors",
    )


def test_verbose_prints_where_people_look(name, capsys):
    fit(name, verbose=True)
    told = capsys.readouterr()
    # which is one closed form: there is nothing on the way to tell
    assert told.out or name in ("EASE", "Blend")


EARLY = {
    "ALS": (of(eckart.ALS, 2, max_iter=1), holes),
    "ExactRecovery": (of(eckart.ExactRecovery, 2, max_iter=1), holes),
    "GaussianMixture": (of(eckart.GaussianMixture, 3, max_iter=1, tol=1e-9), groups),
    "GloVe": (of(eckart.GloVe, 2, min_count=1, max_iter=1, tol=1e-12), words),
    "LDA": (of(eckart.LDA, 2, learning_method="cvb0", max_iter=2), counts),
    "LinearAutoencoder": (of(eckart.LinearAutoencoder, 2, max_iter=2), noise),
    "MiniBatchNMF": (of(eckart.MiniBatchNMF, 3, batch_size=10, max_iter=1, tol=1e-9), parts),
    "MixedTable": (of(eckart.MixedTable, tol=1e-12, max_iter=1), holes),
    "Mixture": (of(eckart.Mixture, 3, max_iter=1, tol=1e-9), groups),
    "NMF": (of(eckart.NMF, 3, max_iter=1), parts),
    "PCA": (of(eckart.PCA, 2, max_iter=1, tol=1e-12), holes),
    "PLSA": (of(eckart.PLSA, 2, max_iter=1), counts),
    "RobustPCA": (of(eckart.RobustPCA, max_iter=1), noise),
    "SLIM": (of(eckart.SLIM, l2=1.0, l1=0.01, max_iter=1, tol=1e-12), parts),
    "SVP": (of(eckart.SVP, 2, max_iter=1, tol=1e-12), holes),
    "SVT": (of(eckart.SVT, max_iter=2), holes),
    "SkipGram": (of(eckart.SkipGram, 2, min_count=1, solver="exact", max_iter=1), words),
    "SoftImpute": (of(eckart.SoftImpute, tau=0.5, max_iter=1, tol=1e-12), holes),
} | {
    name: (lambda make=make, **m: make(schedule="constant", **m), data)
    for name, (make, data) in NETWORKS.items()
}
NO_LIMIT = {
    "LatentDirichletAllocation": "scikit-learn's does not warn: max_iter passes are what is asked for",
    "IncrementalPCA": "one pass; max_iter is that of PCA",
}


@pytest.mark.parametrize("kind", EARLY)
def test_a_fit_that_max_iter_stopped_warns(kind):
    if kind in NETWORKS:
        pytest.importorskip("torch")
    make, data = EARLY[kind]
    x = data()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        make().fit(*(x if isinstance(x, tuple) else (x,)))


def test_every_model_with_a_limit_of_iterations_is_asked():
    limited = {name for name, kind in KINDS.items() if "max_iter" in kind().get_params()}
    assert limited == set(EARLY) | set(NO_LIMIT)
