"""Fit, certify, use, save and load every model on the engine ``numpy`` while ``engines.cpu`` cannot be
imported; prints what each case came to."""

from __future__ import annotations

import importlib.abc
import json
import sys
import traceback
import warnings
from pathlib import Path


class Blocked(importlib.abc.MetaPathFinder):
    """Refuses the import of the engine that must not be needed."""

    def find_spec(self, name, path, target=None):
        if name.startswith("eckart.engines.cpu"):
            raise ImportError(f"{name} is blocked: this model must run on any engine")


def data():
    import numpy as np
    from scipy import sparse

    rng = np.random.default_rng(0)
    dense = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal(
        (60, 8)
    )
    gaps = dense.copy()
    gaps[rng.random(gaps.shape) < 0.3] = np.nan
    gaps[0] = dense[0]
    counts = np.vstack(
        [
            rng.multinomial(40, p, 30)
            for p in ([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.1, 0.3, 0.4])
        ]
    )
    text = [
        list(rng.permutation(["a", "b", "c"] if i % 3 else ["x", "y", "z"])) for i in range(60)
    ]  # subjects of two sizes: their directions are told apart
    exact = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    exact[rng.random(exact.shape) < 0.2] = np.nan
    return {
        "dense": dense,
        "gaps": gaps,
        "counts": counts.astype(float),
        "sparse": sparse.csr_array(counts.astype(float)),
        "text": text,
        "signs": (dense > 0).astype(float),
        "positive": np.abs(dense),
        "positive gaps": np.abs(gaps),
        "likes": sparse.csr_array(counts.astype(float)),
        "exact": exact,
    }


CASES: dict[str, tuple[str, dict, str, tuple[str, ...]]] = {
    # name: class, parameters, data, verbs that take the data again
    "PCA eigh": ("PCA", {"n_components": 2, "svd_solver": "eigh"}, "dense", ("transform",)),
    "PCA svd": ("PCA", {"n_components": 2, "svd_solver": "svd"}, "dense", ("transform",)),
    "PCA randomized": (
        "PCA",
        {"n_components": 2, "svd_solver": "randomized"},
        "dense",
        ("transform",),
    ),
    "PCA sparse": ("PCA", {"n_components": 2, "svd_solver": "lanczos"}, "sparse", ("transform",)),
    "PCA gaps": ("PCA", {"n_components": 2}, "gaps", ("transform", "impute")),
    "LinearAutoencoder": ("LinearAutoencoder", {"n_components": 2}, "dense", ("transform",)),
    "ALS": ("ALS", {"n_components": 2}, "gaps", ("transform",)),
    "ALS cg": ("ALS", {"n_components": 2, "solver": "cg", "biases": False}, "gaps", ("transform",)),
    "ALS nonnegative": (
        "ALS",
        {"n_components": 2, "nonnegative": True},
        "positive gaps",
        ("transform",),
    ),
    "ALS implicit": ("ALS", {"n_components": 2, "feedback": "implicit"}, "likes", ("transform",)),
    "ALS huber": ("ALS", {"n_components": 2, "loss": "huber"}, "gaps", ("transform",)),
    "BayesianMF": (
        "BayesianMF",
        {"n_components": 2, "n_samples": 4, "burn_in": 2},
        "gaps",
        ("transform",),
    ),
    "SVP": ("SVP", {"n_components": 2}, "gaps", ("transform",)),
    "SVT": ("SVT", {}, "exact", ("transform",)),
    "SoftImpute": ("SoftImpute", {"tau": 1.0}, "gaps", ("transform",)),
    "ExactRecovery": ("ExactRecovery", {"n_components": 2}, "exact", ("transform",)),
    "EASE": ("EASE", {"l2": 1.0}, "likes", ("transform",)),
    "SLIM": ("SLIM", {"l2": 1.0}, "likes", ("transform",)),
    "SpectralFilter": ("SpectralFilter", {"n_components": 2}, "likes", ("transform",)),
    "Blend": ("Blend", {}, "likes", ("transform",)),
    "TimeFactors": (
        "TimeFactors",
        {"n_components": 1, "n_samples": 2, "burn_in": 1, "thin": 1, "period": 3},
        "exact",
        (),
    ),
    "MixedTable": (
        "MixedTable",
        {"n_components": 2, "max_iter": 5},
        "gaps",
        ("transform", "impute"),
    ),
    "MixedTable huber": (
        "MixedTable",
        {"losses": {"x0": "huber"}, "max_iter": 5},
        "gaps",
        ("transform",),
    ),
    "GaussianMixture": ("GaussianMixture", {"n_components": 2}, "dense", ("predict",)),
    "GaussianMixture gaps": ("GaussianMixture", {"n_components": 2}, "gaps", ("predict",)),
    "GaussianMixture factor": (
        "GaussianMixture",
        {"n_components": 2, "covariance_type": "factor"},
        "dense",
        ("predict",),
    ),
    "Mixture bernoulli": (
        "Mixture",
        {"n_components": 2, "family": "bernoulli"},
        "signs",
        ("predict",),
    ),
    "Mixture gaussian": (
        "Mixture",
        {"n_components": 2, "family": "gaussian"},
        "dense",
        ("predict",),
    ),
    "Mixture multinomial": (
        "Mixture",
        {"n_components": 2, "family": "multinomial"},
        "counts",
        ("predict",),
    ),
    "PLSA": ("PLSA", {"n_components": 2}, "counts", ("transform",)),
    "LDA gibbs": (
        "LDA",
        {"n_components": 2, "max_iter": 2, "burn_in": 1, "n_samples": 1},
        "counts",
        ("transform",),
    ),
    "LDA cvb0": (
        "LDA",
        {"n_components": 2, "learning_method": "cvb0", "max_iter": 4},
        "counts",
        ("transform",),
    ),
    "LDA variational": (
        "LDA",
        {"n_components": 2, "learning_method": "variational", "max_iter": 4},
        "counts",
        ("transform",),
    ),
    "LatentDirichletAllocation": (
        "LatentDirichletAllocation",
        {"n_components": 2, "max_iter": 3},
        "counts",
        ("transform",),
    ),
    "IncrementalPCA": ("IncrementalPCA", {"n_components": 2}, "dense", ("transform",)),
    "TruncatedSVD": ("TruncatedSVD", {"n_components": 2}, "dense", ("transform",)),
    "LDA online": (
        "LDA",
        {"n_components": 2, "learning_method": "online"},
        "counts",
        ("transform",),
    ),
    "NMF": ("NMF", {"n_components": 2, "max_iter": 20}, "positive", ("transform",)),
    "MiniBatchNMF": (
        "MiniBatchNMF",
        {"n_components": 2, "batch_size": 20, "max_iter": 5},
        "positive",
        ("transform",),
    ),
    "NMF sparse": ("NMF", {"n_components": 2, "max_iter": 20}, "sparse", ("transform",)),
    "NMF kl": (
        "NMF",
        {"n_components": 2, "beta_loss": "kl", "max_iter": 5},
        "sparse",
        ("transform",),
    ),
    "NMF kl dense": (
        "NMF",
        {"n_components": 2, "beta_loss": "kl", "max_iter": 5},
        "positive",
        ("transform",),
    ),
    "NMF beta": (
        "NMF",
        {"n_components": 2, "beta_loss": 0.5, "max_iter": 5},
        "positive",
        ("transform",),
    ),
    "NMF mu": (
        "NMF",
        {"n_components": 2, "solver": "mu", "init": "nndsvdar", "max_iter": 5},
        "sparse",
        ("transform",),
    ),
    "NMF gaps": ("NMF", {"n_components": 2, "max_iter": 20}, "positive gaps", ("transform",)),
    "PMI": ("PMI", {"n_components": 2, "min_count": 1}, "text", ()),
    "GloVe als": ("GloVe", {"n_components": 2, "min_count": 1, "max_iter": 3}, "text", ()),
    "GloVe adagrad": (
        "GloVe",
        {"n_components": 2, "min_count": 1, "solver": "adagrad", "max_iter": 2},
        "text",
        (),
    ),
    "SkipGram": (
        "SkipGram",
        {"n_components": 2, "min_count": 1, "sample": None, "max_iter": 1, "deterministic": True},
        "text",
        (),
    ),
    "SkipGram exact": (
        "SkipGram",
        {"n_components": 2, "min_count": 1, "solver": "exact"},
        "text",
        (),
    ),
}


def run(case: str, folder: Path) -> None:
    import numpy as np

    import eckart

    name, options, kind, verbs = CASES[case]
    x = data()[kind]
    made = getattr(eckart, name)(**options)
    if "engine" not in made.get_params():
        raise TypeError(f"{name} has no engine=")
    made.set_params(engine="numpy")
    if "random_state" in made.get_params():
        made.set_params(random_state=0)
    model = made.fit(x)
    assert model.fit_.plan["engine"] == "numpy", model.fit_.plan
    answers = [np.asarray(getattr(model, verb)(x)) for verb in verbs]
    assert all(np.isfinite(a).all() for a in answers)
    if verbs:
        model.certify(x)
    path = folder / f"{case}.safetensors"
    model.save(path)
    loaded = eckart.load(path)
    for verb, answer in zip(verbs, answers):
        np.testing.assert_array_equal(np.asarray(getattr(loaded, verb)(x)), answer)
    if hasattr(model, "recommend"):
        model.recommend(0, n=1)


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocked())
    warnings.simplefilter("ignore")
    for case in sys.argv[2:] or CASES:
        try:
            run(case, Path(sys.argv[1]))
            print(json.dumps([case, "done"]), flush=True)
        except Exception:
            print(json.dumps([case, traceback.format_exc()]), flush=True)
