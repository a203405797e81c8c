"""Every estimator, listed once: where its class is, which verb makes it, and what the shell, the
studio, the service and saved files call it.

A class is imported only when it is used, so this table holds names alone. A new model is a line
here, its own file and its page.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Model(NamedTuple):
    """One estimator. ``verb`` is the one that makes it and ``method`` its name there (None where it
    is made from Python alone)."""

    name: str
    module: str
    verb: str
    method: str | None = None
    values: bool = True  # whether it predicts values; a model that does not gives lists alone
    lists: bool = False  # whether it recommends out of implicit feedback
    saved: bool = True


MODELS = (
    Model("PCA", "eckart.reduce.pca", "reduce", "pca"),
    Model("Autoencoder", "eckart.reduce.autoencoder", "reduce", "autoencoder"),
    Model("ConvAutoencoder", "eckart.reduce.autoencoder", "reduce", "conv_autoencoder"),
    Model("IncrementalPCA", "eckart.reduce.incremental", "reduce"),
    Model("TruncatedSVD", "eckart.reduce.truncated", "reduce"),
    Model("RobustPCA", "eckart.reduce.robust", "reduce", "robust"),
    Model("LinearAutoencoder", "eckart.reduce.linear_autoencoder", "reduce"),
    Model("Projection", "eckart.reduce.project", "reduce", saved=False),
    Model("NetworkClassifier", "eckart.nn.classifier", "reduce"),
    Model("NetworkRegressor", "eckart.nn.classifier", "reduce"),
    Model("ALS", "eckart.complete.factors.als", "complete", "als", lists=True),
    Model("BayesianMF", "eckart.complete.bayes.bayesian_mf", "complete", "bayes"),
    Model("SoftImpute", "eckart.complete.nuclear.soft_impute", "complete", "soft-impute"),
    Model("SVP", "eckart.complete.nuclear.svp", "complete", "svp"),
    Model("SVT", "eckart.complete.nuclear.svt", "complete", "svt"),
    Model("ExactRecovery", "eckart.complete.nuclear.exact", "complete", "exact"),
    Model("EASE", "eckart.complete.items.ease", "complete", "ease", values=False, lists=True),
    Model("SLIM", "eckart.complete.items.slim", "complete", "slim", values=False, lists=True),
    Model(
        "SpectralFilter",
        "eckart.complete.items.spectral_filter",
        "complete",
        "gf-cf",
        values=False,
        lists=True,
    ),
    Model("Blend", "eckart.complete.items.blend", "complete", "blend", values=False, lists=True),
    Model("TimeFactors", "eckart.complete.series.time_factors", "complete", "series"),
    Model("MixedTable", "eckart.complete.tables.mixed_table", "complete", "mixed"),
    Model("LDA", "eckart.explain.topics.lda", "explain", "lda"),
    Model("PLSA", "eckart.explain.topics.plsa", "explain", "plsa"),
    Model("NMF", "eckart.explain.parts.nmf", "explain", "nmf"),
    Model("GaussianMixture", "eckart.explain.mixtures.gaussian", "explain", "mixture"),
    Model("Mixture", "eckart.explain.mixtures.mixture", "explain"),
    Model("LatentDirichletAllocation", "eckart.explain.topics.latent_dirichlet", "explain"),
    Model("MiniBatchNMF", "eckart.explain.parts.mini_batch", "explain"),
    Model("SkipGram", "eckart.embed.skipgram", "embed", "skipgram"),
    Model("PMI", "eckart.embed.pmi", "embed", "pmi"),
    Model("GloVe", "eckart.embed.glove", "embed", "glove"),
)

BY_NAME = {model.name: model for model in MODELS}
SAVED = {model.name: model for model in MODELS if model.saved}
"""The classes that a file may name; no other is imported."""


def methods(verb: str, **traits: bool) -> dict[str, str]:
    """Names of classes by the method of a verb that makes them, of the models with these traits.

    >>> methods("embed")
    {'skipgram': 'SkipGram', 'pmi': 'PMI', 'glove': 'GloVe'}
    >>> list(methods("complete", values=False))
    ['ease', 'slim', 'gf-cf', 'blend']
    """
    return {
        model.method: model.name
        for model in MODELS
        if model.verb == verb
        and model.method is not None
        and all(getattr(model, trait) is wanted for trait, wanted in traits.items())
    }


def class_named(name: str) -> Any:
    """The class of a listed model."""
    return getattr(import_module(BY_NAME[name].module), name)
