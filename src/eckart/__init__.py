"""eckart: low-rank learning with evidence. Reduce a matrix to the few numbers that explain it, or complete one that is mostly missing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "PCA": "eckart.reduce.pca",
    "Projection": "eckart.reduce.project",
    "principal_angles": "eckart.reduce.project",
    "subspace_distance": "eckart.reduce.project",
    "LinearAutoencoder": "eckart.reduce.linear_autoencoder",
    "Autoencoder": "eckart.reduce.autoencoder",
    "ConvAutoencoder": "eckart.reduce.conv_autoencoder",
    "NetworkClassifier": "eckart.nn.classifier",
    "NetworkRegressor": "eckart.nn.regressor",
    "power_method": "eckart.reduce.power",
    "select_components": "eckart.reduce.select",
    "ALS": "eckart.complete.als",
    "BayesianMF": "eckart.complete.bayes",
    "SoftImpute": "eckart.complete.soft_impute",
    "SVT": "eckart.complete.svt",
    "SVP": "eckart.complete.svp",
    "ExactRecovery": "eckart.complete.exact",
    "recovery": "eckart.complete.recovery",
    "recovery_certificate": "eckart.complete.recovery",
    "tune": "eckart.complete.tune",
    "randomized_svd": "eckart.complete.operators",
    "normalise": "eckart.complete.normalise",
    "split": "eckart.complete.split",
    "folds": "eckart.complete.split",
    "GaussianMixture": "eckart.explain.gaussian",
    "Mixture": "eckart.explain.mixture",
    "select_mixture": "eckart.explain.select",
    "NMF": "eckart.explain.nmf",
    "select_rank": "eckart.explain.nmf_consensus",
    "Vectors": "eckart.embed.vectors",
    "read_vectors": "eckart.embed.reading",
    "observed": "eckart.io.triples",
    "corpus": "eckart.io.vocabulary",
    "PLSA": "eckart.explain.plsa",
    "LDA": "eckart.explain.lda",
    "document_completion": "eckart.explain.judge",
    "split_tokens": "eckart.explain.judge",
    "coherence": "eckart.explain.judge",
    "topic_diversity": "eckart.explain.judge",
    "align_topics": "eckart.explain.judge",
    "select_topics": "eckart.explain.judge",
    "shards": "eckart.io.shards",
    "sequences": "eckart.embed.sequences",
    "cooccurrence": "eckart.embed.cooccurrence",
    "GloVe": "eckart.embed.glove",
    "write_shards": "eckart.io.shards",
    "SkipGram": "eckart.embed.skipgram",
    "PMI": "eckart.embed.pmi",
    "LowRank": "eckart.factors",
    "read": "eckart.io.read",
    "load": "eckart.io.save",
    "Dense": "eckart.matrix",
    "Observed": "eckart.matrix",
    "Counts": "eckart.matrix",
    "Certificate": "eckart.certify.certificate",
    "InputError": "eckart.errors",
    "FileError": "eckart.errors",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("eckart.metrics")
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'eckart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from eckart import metrics as metrics
    from eckart.certify.certificate import Certificate as Certificate
    from eckart.complete.als import ALS as ALS
    from eckart.complete.bayes import BayesianMF as BayesianMF
    from eckart.complete.exact import ExactRecovery as ExactRecovery
    from eckart.complete.normalise import normalise as normalise
    from eckart.complete.operators import randomized_svd as randomized_svd
    from eckart.complete.recovery import recovery as recovery
    from eckart.complete.recovery import recovery_certificate as recovery_certificate
    from eckart.complete.soft_impute import SoftImpute as SoftImpute
    from eckart.complete.split import folds as folds
    from eckart.complete.split import split as split
    from eckart.complete.svp import SVP as SVP
    from eckart.complete.svt import SVT as SVT
    from eckart.complete.tune import tune as tune
    from eckart.embed.cooccurrence import cooccurrence as cooccurrence
    from eckart.embed.glove import GloVe as GloVe
    from eckart.embed.pmi import PMI as PMI
    from eckart.embed.reading import read_vectors as read_vectors
    from eckart.embed.sequences import sequences as sequences
    from eckart.embed.skipgram import SkipGram as SkipGram
    from eckart.embed.vectors import Vectors as Vectors
    from eckart.errors import FileError as FileError
    from eckart.errors import InputError as InputError
    from eckart.explain.gaussian import GaussianMixture as GaussianMixture
    from eckart.explain.judge import align_topics as align_topics
    from eckart.explain.judge import coherence as coherence
    from eckart.explain.judge import document_completion as document_completion
    from eckart.explain.judge import select_topics as select_topics
    from eckart.explain.judge import split_tokens as split_tokens
    from eckart.explain.judge import topic_diversity as topic_diversity
    from eckart.explain.lda import LDA as LDA
    from eckart.explain.mixture import Mixture as Mixture
    from eckart.explain.nmf import NMF as NMF
    from eckart.explain.nmf_consensus import select_rank as select_rank
    from eckart.explain.plsa import PLSA as PLSA
    from eckart.explain.select import select_mixture as select_mixture
    from eckart.factors import LowRank as LowRank
    from eckart.io.read import read as read
    from eckart.io.save import load as load
    from eckart.io.shards import shards as shards
    from eckart.io.shards import write_shards as write_shards
    from eckart.io.triples import observed as observed
    from eckart.io.vocabulary import corpus as corpus
    from eckart.matrix import Counts as Counts
    from eckart.matrix import Dense as Dense
    from eckart.matrix import Observed as Observed
    from eckart.nn.classifier import NetworkClassifier as NetworkClassifier
    from eckart.nn.regressor import NetworkRegressor as NetworkRegressor
    from eckart.reduce.autoencoder import Autoencoder as Autoencoder
    from eckart.reduce.conv_autoencoder import ConvAutoencoder as ConvAutoencoder
    from eckart.reduce.linear_autoencoder import LinearAutoencoder as LinearAutoencoder
    from eckart.reduce.pca import PCA as PCA
    from eckart.reduce.power import power_method as power_method
    from eckart.reduce.project import Projection as Projection
    from eckart.reduce.project import principal_angles as principal_angles
    from eckart.reduce.project import subspace_distance as subspace_distance
    from eckart.reduce.select import select_components as select_components
