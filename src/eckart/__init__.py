"""eckart: low-rank learning with evidence. Reduce a matrix to the few numbers that explain it, or
complete one that is mostly missing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eckart.registry import MODELS

__version__ = "0.1.0"

_PUBLIC = {model.name: model.module for model in MODELS} | {
    "principal_angles": "eckart.reduce.project",
    "subspace_distance": "eckart.reduce.project",
    "power_method": "eckart.reduce.power",
    "select_components": "eckart.reduce.select",
    "recovery": "eckart.complete.nuclear.recovery",
    "recovery_certificate": "eckart.complete.nuclear.recovery",
    "tune": "eckart.complete.tune",
    "compare": "eckart.complete.compare_lists",
    "randomized_svd": "eckart.complete.nuclear.operators",
    "normalise": "eckart.complete.normalise",
    "split": "eckart.complete.split",
    "folds": "eckart.complete.split",
    "EntryKFold": "eckart.complete.split",
    "select_mixture": "eckart.explain.mixtures.select",
    "non_negative_factorization": "eckart.explain.parts.nmf",
    "select_rank": "eckart.explain.parts.consensus",
    "Vectors": "eckart.embed.vectors",
    "read_vectors": "eckart.embed.sequences",
    "observed": "eckart.io.tables.triples",
    "corpus": "eckart.io.text.vocabulary",
    "document_completion": "eckart.explain.topics.judge",
    "split_tokens": "eckart.explain.topics.judge",
    "coherence": "eckart.explain.topics.judge",
    "topic_diversity": "eckart.explain.topics.judge",
    "align_topics": "eckart.explain.topics.judge",
    "select_topics": "eckart.explain.topics.judge",
    "shards": "eckart.io.text.shards",
    "sequences": "eckart.embed.sequences",
    "cooccurrence": "eckart.embed.cooccurrence",
    "write_shards": "eckart.io.text.shards",
    "LowRank": "eckart.factors",
    "read": "eckart.io.read",
    "view": "eckart.studio.view",
    "export_vectors": "eckart.serve.search_index",
    "load": "eckart.io.models.save",
    "Dense": "eckart.matrix",
    "Observed": "eckart.matrix",
    "Counts": "eckart.matrix",
    "Certificate": "eckart.certify.certificate",
    "show_versions": "eckart.versions",
    "InputError": "eckart.errors",
    "FileError": "eckart.errors",
}

_ROOMS = ("metrics", "optim", "plots")
"""Modules that are there after ``import eckart``, loaded on first use."""

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"eckart.{name}")
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        import_module("eckart.verb_words").describe(value)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'eckart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from eckart import metrics as metrics
    from eckart import optim as optim
    from eckart import plots as plots
    from eckart.certify.certificate import Certificate as Certificate
    from eckart.complete.bayes.bayesian_mf import BayesianMF as BayesianMF
    from eckart.complete.compare_lists import compare as compare
    from eckart.complete.factors.als import ALS as ALS
    from eckart.complete.items.blend import Blend as Blend
    from eckart.complete.items.ease import EASE as EASE
    from eckart.complete.items.slim import SLIM as SLIM
    from eckart.complete.items.spectral_filter import SpectralFilter as SpectralFilter
    from eckart.complete.normalise import normalise as normalise
    from eckart.complete.nuclear.exact import ExactRecovery as ExactRecovery
    from eckart.complete.nuclear.operators import randomized_svd as randomized_svd
    from eckart.complete.nuclear.recovery import recovery as recovery
    from eckart.complete.nuclear.recovery import recovery_certificate as recovery_certificate
    from eckart.complete.nuclear.soft_impute import SoftImpute as SoftImpute
    from eckart.complete.nuclear.svp import SVP as SVP
    from eckart.complete.nuclear.svt import SVT as SVT
    from eckart.complete.series.time_factors import TimeFactors as TimeFactors
    from eckart.complete.split import EntryKFold as EntryKFold
    from eckart.complete.split import folds as folds
    from eckart.complete.split import split as split
    from eckart.complete.tables.mixed_table import MixedTable as MixedTable
    from eckart.complete.tune import tune as tune
    from eckart.embed.cooccurrence import cooccurrence as cooccurrence
    from eckart.embed.glove import GloVe as GloVe
    from eckart.embed.pmi import PMI as PMI
    from eckart.embed.sequences import read_vectors as read_vectors
    from eckart.embed.sequences import sequences as sequences
    from eckart.embed.skipgram import SkipGram as SkipGram
    from eckart.embed.vectors import Vectors as Vectors
    from eckart.errors import FileError as FileError
    from eckart.errors import InputError as InputError
    from eckart.explain.mixtures.gaussian import GaussianMixture as GaussianMixture
    from eckart.explain.mixtures.mixture import Mixture as Mixture
    from eckart.explain.mixtures.select import select_mixture as select_mixture
    from eckart.explain.parts.consensus import select_rank as select_rank
    from eckart.explain.parts.mini_batch import MiniBatchNMF as MiniBatchNMF
    from eckart.explain.parts.nmf import NMF as NMF
    from eckart.explain.parts.nmf import (
        non_negative_factorization as non_negative_factorization,
    )
    from eckart.explain.topics.judge import align_topics as align_topics
    from eckart.explain.topics.judge import coherence as coherence
    from eckart.explain.topics.judge import document_completion as document_completion
    from eckart.explain.topics.judge import select_topics as select_topics
    from eckart.explain.topics.judge import split_tokens as split_tokens
    from eckart.explain.topics.judge import topic_diversity as topic_diversity
    from eckart.explain.topics.latent_dirichlet import (
        LatentDirichletAllocation as LatentDirichletAllocation,
    )
    from eckart.explain.topics.lda import LDA as LDA
    from eckart.explain.topics.plsa import PLSA as PLSA
    from eckart.factors import LowRank as LowRank
    from eckart.io.models.save import load as load
    from eckart.io.read import read as read
    from eckart.io.tables.triples import observed as observed
    from eckart.io.text.shards import shards as shards
    from eckart.io.text.shards import write_shards as write_shards
    from eckart.io.text.vocabulary import corpus as corpus
    from eckart.matrix import Counts as Counts
    from eckart.matrix import Dense as Dense
    from eckart.matrix import Observed as Observed
    from eckart.nn.classifier import NetworkClassifier as NetworkClassifier
    from eckart.nn.classifier import NetworkRegressor as NetworkRegressor
    from eckart.reduce.autoencoder import Autoencoder as Autoencoder
    from eckart.reduce.autoencoder import ConvAutoencoder as ConvAutoencoder
    from eckart.reduce.incremental import IncrementalPCA as IncrementalPCA
    from eckart.reduce.linear_autoencoder import LinearAutoencoder as LinearAutoencoder
    from eckart.reduce.pca import PCA as PCA
    from eckart.reduce.power import power_method as power_method
    from eckart.reduce.project import Projection as Projection
    from eckart.reduce.project import principal_angles as principal_angles
    from eckart.reduce.project import subspace_distance as subspace_distance
    from eckart.reduce.robust import RobustPCA as RobustPCA
    from eckart.reduce.select import select_components as select_components
    from eckart.reduce.truncated import TruncatedSVD as TruncatedSVD
    from eckart.serve.search_index import export_vectors as export_vectors
    from eckart.studio.view import view as view
    from eckart.versions import show_versions as show_versions
