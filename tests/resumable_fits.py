"""Every fit that can be resumed from a checkpoint, with small data: for the tests of resuming and
for the campaign that kills them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from eckart import (
    ALS,
    LDA,
    NMF,
    PCA,
    PLSA,
    PMI,
    SLIM,
    SVP,
    SVT,
    BayesianMF,
    ExactRecovery,
    GaussianMixture,
    GloVe,
    IncrementalPCA,
    LatentDirichletAllocation,
    LinearAutoencoder,
    MiniBatchNMF,
    MixedTable,
    Mixture,
    RobustPCA,
    SkipGram,
    SoftImpute,
    SpectralFilter,
    TimeFactors,
    TruncatedSVD,
)


def groups():
    rng = np.random.default_rng(0)
    return np.concatenate(
        [rng.standard_normal((40, 3)) + c for c in ([0, 0, 0], [3, 0, 0], [0, 4, 1])]
    )


def counts():
    return np.random.default_rng(1).poisson(0.6, (60, 20)).astype(float)


def parts(rows=60, n=20):
    rng = np.random.default_rng(2)
    return np.abs(rng.gamma(0.3, 1, (rows, 4)) @ rng.gamma(0.3, 1, (4, n)))


def noisy_parts():
    """Large enough for a sketch, with noise that it does not see: sweeps on the rows themselves are
    left to do."""
    return parts(300, 250) + np.random.default_rng(7).random((300, 250))


def holes():
    rng, a = np.random.default_rng(3), parts()
    a[rng.random(a.shape) < 0.2] = np.nan
    return a


def noise():
    return np.random.default_rng(4).standard_normal((50, 25))


def words():
    rng = np.random.default_rng(5)
    return [list(rng.permutation(["a", "b", "c", "d"])) for _ in range(200)]


def of(kind, *args, **options):
    return lambda **more: kind(*args, **options | {"random_state": 0} | more)


FITS = {
    "GaussianMixture": (of(GaussianMixture, 4, n_init=3, tol=1e-8), groups),
    "GaussianMixture auto": (of(GaussianMixture, "auto"), groups),
    "GaussianMixture factor": (of(GaussianMixture, 2, covariance_type="factor", tol=1e-6), groups),
    "GaussianMixture gaps": (of(GaussianMixture, 3, tol=1e-6), holes),
    "Mixture": (of(Mixture, 3, n_init=3, tol=1e-8, family="gaussian diag"), groups),
    "Mixture bernoulli": (
        of(Mixture, 3, n_init=2, tol=1e-8, family="bernoulli"),
        lambda: (counts() > 0) * 1.0,
    ),
    "PLSA": (of(PLSA, 3, n_init=2), counts),
    "LDA cvb0": (of(LDA, 3, learning_method="cvb0", n_init=2), counts),
    "LDA variational": (of(LDA, 3, learning_method="variational", n_init=2, max_iter=25), counts),
    "LDA gibbs": (of(LDA, 3, learning_method="gibbs", n_init=2, burn_in=20, n_samples=5), counts),
    "LDA gibbs numpy": (
        of(LDA, 2, learning_method="gibbs", max_iter=2, burn_in=3, n_samples=2, engine="numpy"),
        lambda: counts()[:10],
    ),
    "LDA online": (of(LDA, 3, learning_method="online", max_iter=4, batch_size=7), counts),
    "LDA pieces": (
        of(LDA, 3, learning_method="online", max_iter=4, batch_size=7),
        lambda: [counts()[:30], counts()[30:]],
    ),
    "NMF hals": (of(NMF, 4, n_init=2, tol=1e-5), parts),
    "NMF sketch": (of(NMF, 3, tol=1e-9, max_iter=12), noisy_parts),
    "NMF cd": (of(NMF, 4, solver="cd"), parts),
    "NMF als": (of(NMF, 4, solver="als", n_init=2, max_iter=40), parts),
    "NMF mm": (of(NMF, 4, beta_loss="kl", tol=1e-6), parts),
    "NMF mu": (of(NMF, 4, beta_loss="kl", solver="mu", max_iter=60), parts),
    "MiniBatchNMF": (of(MiniBatchNMF, 3, batch_size=10, tol=0.0, max_iter=12), parts),
    "NMF gaps": (of(NMF, 4, tol=1e-6, max_iter=50), holes),
    "PCA eigh": (of(PCA, 2, svd_solver="eigh"), lambda: noise()[:, :5]),
    "PCA gaps": (of(PCA, 2), holes),
    "PCA gaps, k open": (of(PCA, "auto"), holes),
    "PCA randomized": (of(PCA, 3, svd_solver="randomized", tol=1e-9), noise),
    "PCA lanczos": (of(PCA, 3, svd_solver="lanczos"), noise),
    "PCA lanczos, k open": (of(PCA, 0.95, svd_solver="lanczos"), noise),
    "PCA power": (of(PCA, 2, svd_solver="power"), noise),
    "PCA gradient": (of(PCA, 2, svd_solver="gradient", max_iter=100), noise),
    "RobustPCA": (of(RobustPCA, max_iter=40), holes),
    "LinearAutoencoder": (of(LinearAutoencoder, 2, max_iter=60), noise),
    "LinearAutoencoder adam": (
        of(LinearAutoencoder, 2, optimizer="adam", tied=True, max_iter=60),
        noise,
    ),
    "LinearAutoencoder batches": (of(LinearAutoencoder, 2, batch_size=10, max_iter=30), noise),
    "LinearAutoencoder gaps": (of(LinearAutoencoder, 2, max_iter=50), holes),
    "ALS": (of(ALS, 2, tol=0.0, max_iter=8, l2=0.1), holes),
    "ALS of rank 1": (of(ALS, 1, tol=0.0, max_iter=8, l2=0.1), holes),
    "ALS of rank 9": (of(ALS, 9, tol=0.0, max_iter=8, l2=0.1), holes),
    "ALS implicit": (of(ALS, 1, feedback="implicit", tol=0.0, max_iter=8), counts),
    "ALS of counts": (of(ALS, 1, loss="poisson", tol=0.0, max_iter=8), counts),
    "ALS nonnegative": (of(ALS, 1, nonnegative=True, tol=0.0, max_iter=8), holes),
    "ALS held out": (of(ALS, 1, stop="held_out", tol=0.0, max_iter=8), holes),
    "BayesianMF of rank 1": (of(BayesianMF, 1, burn_in=4, n_samples=8), holes),
    "BayesianMF": (of(BayesianMF, 2, burn_in=4, n_samples=8), holes),
    "BayesianMF heavy": (
        of(BayesianMF, 2, tails="heavy", noise="both", burn_in=4, n_samples=8),
        holes,
    ),
    "BayesianMF of signs": (
        of(BayesianMF, 2, likelihood="probit", burn_in=4, n_samples=8),
        lambda: (holes() > 0.2) + 0.0 * holes(),
    ),
    "BayesianMF of grades": (
        of(BayesianMF, 2, likelihood="ordinal", burn_in=4, n_samples=8),
        lambda: np.clip(np.round(2 * holes()), 0, 3),
    ),
    "BayesianMF of counts": (
        of(BayesianMF, 2, likelihood="poisson", burn_in=4, n_samples=8),
        lambda: np.round(3 * holes()),
    ),
    "SVP": (of(SVP, 2, tol=0.0, max_iter=20), holes),
    "SVT": (of(SVT, tol=1e-12, max_iter=20), holes),
    "SoftImpute": (of(SoftImpute, tau=0.5, tol=1e-5), holes),
    "ExactRecovery": (of(ExactRecovery, 2, max_iter=12), holes),
    "TimeFactors": (of(TimeFactors, 2, burn_in=6, n_samples=10, thin=2), holes),
    "MixedTable": (of(MixedTable, losses={"x1": "huber"}, tol=1e-7, max_iter=30), holes),
    "NMF of rank 1": (of(NMF, 1, tol=1e-9), parts),
    "PCA of one direction": (of(PCA, 1, svd_solver="lanczos"), noise),
    "PCA gaps, one direction": (of(PCA, 1), holes),
    "SVP of rank 1": (of(SVP, 1, tol=0.0, max_iter=20), holes),
    "PLSA of one topic": (of(PLSA, 1), counts),
    "GaussianMixture of one column": (
        of(GaussianMixture, 2, tol=1e-8, n_init=2),
        lambda: groups()[:, :1],
    ),
    "TimeFactors of one factor": (of(TimeFactors, 1, burn_in=6, n_samples=10, thin=2), holes),
    "IncrementalPCA of wide rows": (
        of(IncrementalPCA, 2, batch_size=10),
        lambda: np.tile(noise(), 90),
    ),
    "IncrementalPCA": (of(IncrementalPCA, 2, batch_size=10), noise),
    "LatentDirichletAllocation": (of(LatentDirichletAllocation, 2, max_iter=4), counts),
    "GloVe": (of(GloVe, 2, min_count=1, tol=0.0), words),
    "GloVe adagrad": (of(GloVe, 2, min_count=1, solver="adagrad", max_iter=10), words),
    "SkipGram exact": (
        of(SkipGram, 2, min_count=1, sample=None, solver="exact", max_iter=12),
        words,
    ),
    "SkipGram softmax": (
        of(SkipGram, 2, min_count=1, sample=None, loss="softmax", bias=True, max_iter=12),
        words,
    ),
    "PMI": (of(PMI, 3, min_count=1, tol=1e-12), words),
    "PMI of counts": (of(PMI, 3, tol=1e-12), lambda: sparse.csr_array(counts().T @ counts())),
    "SLIM": (of(SLIM, l2=1.0, l1=0.1), parts),
    "SpectralFilter": (of(SpectralFilter, 3), counts),
    "TruncatedSVD": (of(TruncatedSVD, 3, n_iter=6), noise),
    "TruncatedSVD arpack": (of(TruncatedSVD, 3, algorithm="arpack"), noise),
    "SkipGram": (of(SkipGram, 2, min_count=1, sample=None, deterministic=True, max_iter=4), words),
}


def fitted(model):
    """All that a fit found: arrays by name, the trace, the certificate."""
    arrays = dict(model.fit_.factors.to_state()[0])
    arrays |= model.extra_state() if hasattr(model, "extra_state") else {}
    told = (
        model.certificate_.to_dict(),
        model.fit_.trace.values,
        model.fit_.trace.reason,
        len(model.fit_.plan),
    )
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}, str(told)
