"""Runs of reduction that are written down: solvers, ranks, plans, streams, scales, networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

import eckart
from eckart import (
    PCA,
    IncrementalPCA,
    LinearAutoencoder,
    Projection,
    TruncatedSVD,
)
from eckart.reduce import plan, rank
from paths_base import case, fitted, near, several
from resumable_fits import counts, holes, noise


@case
def networks_in_pieces() -> Any:
    x = noise()[:, :6]
    model = eckart.Autoencoder(2, hidden=[5], batch_size=10, random_state=0, n_threads=1)
    for piece in np.array_split(x, 2):
        model.partial_fit(piece)
    again = model.certify(x).to_dict()
    return [
        model.transform(x[:3]),
        model.fit_.plan,
        again["facts"],
        model.fit_.trace.values,
        model.partial_fit(holes()[:12, :6]).impute(holes()[:3, :6]),
    ]


@case
def networks_beside_lines() -> Any:
    from eckart.matrix import Observed
    from eckart.reduce.compare import linear_model, linear_risk, principal_subspace

    x, gaps = eckart.Dense(noise()[:, :6]), Observed.from_nan(near())
    empty = Observed.from_nan(np.where(np.arange(12) == 3, np.nan, near()))
    out = [
        linear_risk(x, x, 2),
        linear_risk(gaps, gaps, 2),
        linear_risk(empty, empty, 2),
        np.abs(principal_subspace(x, 2)).sum(axis=0),
        principal_subspace(eckart.Dense(noise()[:2, :6]), 4).shape,
    ]
    return [
        *out,
        np.abs(principal_subspace(gaps, 2)).sum(axis=0),
        linear_model(gaps, 7) is None,
        linear_model(gaps, 6) is None,
        linear_model(x, 9).n_components_,
    ]


@case
def scaled_rows() -> Any:
    x = noise()[:, :5] * [1.0, 10.0, 0.0, 1e-3, 2.0] + [0.0, 5.0, 3.0, 0.0, 1e6]
    gaps = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    out = [
        PCA(2, scale=True, random_state=0).fit(data)
        for data in (x, [x[:20], x[20:]], gaps, sparse.csr_array(counts()[:, :5]))
    ]
    out.append(PCA(2, scale=True, random_state=0).partial_fit(x[:20]).partial_fit(x[20:]))
    return [
        [
            m.scale_,
            m.mean_,
            m.explained_variance_,
            m.certificate_.to_dict()["notes"],
            m.transform(x[:2]),
        ]
        for m in out
    ]


@case
def ranks_of_spectra() -> Any:
    rng = np.random.default_rng(5)
    out: list[Any] = [
        [rank.marchenko_pastur_median(b), rank.threshold_factor(b)] for b in (0.1, 0.5, 1.0)
    ]
    for n, k, size in ((8, 2, 3.0), (12, 4, 2.0), (6, 1, 1.5), (10, 0, 1.0)):
        x = size * rng.standard_normal((40, k)) @ rng.standard_normal((k, n)) + rng.standard_normal(
            (40, n)
        )
        values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1].copy()
        total = float(values.sum())
        out.append(
            [
                rank.minka(values, 40),
                rank.gavish_donoho(values, 40, n),
                rank.gavish_donoho(values[: k + 2], 40, n, total),
            ]
        )
        out.append([rank.by_share(values, total, s) for s in (0.3, 0.6, 0.9, 0.999)])
    return out


@case
def pca_with_k_open() -> Any:
    rng = np.random.default_rng(6)
    x = 3 * rng.standard_normal((60, 3)) @ rng.standard_normal((3, 9)) + rng.standard_normal(
        (60, 9)
    )
    fits = {
        f"{k} {s}": fitted(PCA(k, svd_solver=s), x)
        for k in ("auto", "mle", 0.7, None)
        for s in ("svd", "eigh")
    }
    fits |= {
        f"{k} {s}": fitted(PCA(k, svd_solver=s), x)
        for k in (0.7, "auto")
        for s in ("randomized", "lanczos")
    }
    wide = x.T @ rng.standard_normal((60, 60))
    fits |= {
        f"wide {k}": fitted(PCA(k, svd_solver="eigh"), wide, sample_weight=np.arange(1.0, 10.0))
        for k in (2, "auto")
    }
    return fits | {
        "none": fitted(PCA(0, svd_solver="eigh"), x),
        "less": fitted(PCA(8, svd_solver="eigh"), np.vstack([x[:4], x[:4]])),
    }


@case
def pca_by_options() -> Any:
    x = noise()[:, :8]

    def ask(m):
        return [
            m.transform(x[:3]),
            m.inverse_transform(m.transform(x[:3])),
            m.score(x),
            m.get_precision(),
            m.outliers(x).spe_limit,
            m.outliers(x).t2_limit,
        ]

    return several(
        scaled=(PCA(3, scale=True), x, ask),
        whitened=(PCA(3, whiten=True, svd_solver="eigh"), x, ask),
        plain=(PCA(3, center=False, svd_solver="svd"), x, ask),
        varimax=(PCA(3, rotation="varimax"), x, ask),
        promax=(PCA(3, rotation="promax"), x, ask),
        gaps=(
            PCA(2, tol=1e-6),
            near(),
            lambda m: [
                m.transform(near()[:4]),
                m.impute(near()[:4]),
                m.score_samples(near()[:4]),
                m.certify(near()).to_dict()["facts"],
            ],
        ),
        large=(PCA(2), x * 1e152),
        small=(PCA(2), x * 1e-155),
        tall=(PCA(2), near() * 1e152),
        sparse=(PCA(2, svd_solver="randomized"), sparse.csr_array(counts())),
        power=(PCA(2, svd_solver="power", tol=1e-6), x),
        gradient=(PCA(2, svd_solver="gradient", max_iter=60), x),
        weighed=(PCA(2, svd_solver="power"), x[:6]),
    )


@case
def pca_in_pieces() -> Any:
    x = noise()
    stream = PCA(2, random_state=0)
    for piece in np.array_split(x, 5):
        stream.partial_fit(piece)
    weighed = (
        PCA(2, random_state=0)
        .partial_fit(x[:20], sample_weight=np.arange(1.0, 21.0))
        .partial_fit(x[20:])
    )
    online = IncrementalPCA(2, batch_size=9).fit(x)
    rows = PCA(2, random_state=0).fit([x[:20], x[20:]])
    given = PCA(2)
    given.components_, given.mean_, given.explained_variance_ = (
        np.eye(4)[:2],
        np.arange(4.0),
        np.array([3.0, 1.0]),
    )
    given.singular_values_ = np.array([6.0, 3.0])
    other = PCA(2)
    other.n_samples_, other.noise_variance_ = 11, 0.3
    other.components_, other.mean_, other.singular_values_ = (
        np.eye(4)[:2],
        np.arange(4.0),
        np.array([6.0, 3.0]),
    )
    share = PCA(2)
    share.explained_variance_ratio_ = np.array([0.5, 0.2])
    share.components_, share.mean_, share.explained_variance_ = (
        np.eye(4)[:2],
        np.arange(4.0),
        np.array([3.0, 1.0]),
    )
    models = (stream, weighed, online, rows, given, other, share)
    return [
        [
            m.explained_variance_,
            m.explained_variance_ratio_,
            m.noise_variance_,
            m.n_samples_,
            m.singular_values_,
            m.transform(np.ones((1, m.n_features_in_))),
        ]
        for m in models
    ]


@case
def components_selected() -> Any:
    rng = np.random.default_rng(8)
    x = 2 * rng.standard_normal((50, 2)) @ rng.standard_normal((2, 7)) + rng.standard_normal(
        (50, 7)
    )
    out = [
        eckart.select_components(data, 4, shuffles=5, random_state=0)
        for data in (x, near(), sparse.csr_array(counts()[:, :6]))
    ]
    return [[s.table, s.choices, s.notes, s.agree, str(s)] for s in out]


@case
def projections() -> Any:
    rng = np.random.default_rng(9)
    a, b, x = rng.standard_normal((6, 2)), rng.standard_normal((6, 3)), rng.standard_normal((4, 6))
    p, q = Projection.onto(a, np.arange(6.0)), Projection.onto(np.hstack([b, b[:, :1]]))
    both = p @ q
    out = [
        p(x),
        p.codes(x),
        p.distance(x),
        p.complement()(x),
        p.matrix(),
        both(x),
        both.matrix(),
        both.is_projection(),
        p.angles(q),
        q.rank,
    ]
    inside = Projection(np.eye(6)[:, :2]) @ Projection(np.eye(6)[:, :3])
    out += [
        inside.is_projection(),
        eckart.subspace_distance(a, b),
        eckart.subspace_distance(a, a + 1e-3 * b[:, :2]),
        eckart.principal_angles(a, a + 1e-6 * b[:, :2]),
    ]
    return [
        *out,
        Projection(np.zeros((3, 0))).complement().rank,
        eckart.principal_angles(np.zeros((3, 1)), np.eye(3)),
        Projection.onto(b, tol=0.9).rank,
    ]


@case
def eigenvectors_by_powers() -> Any:
    rng = np.random.default_rng(10)
    q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    out = []
    for values in (
        [5, 4, 3, 2, 1, 0.5, 0.2, 0.1],
        [3, -3, 1, 0.5, 0, 0, 0, 0],
        [2, 2, 1, 0, 0, 0, 0, 0],
        [-4, 3, 1, 0.1, 0, 0, 0, 0],
        [0] * 8,
    ):
        a = (q * values) @ q.T
        found = eckart.power_method((a + a.T) / 2, 2, random_state=0)
        out.append(
            [found, eckart.power_method(lambda v, a=a: a @ v, 1, n=8, max_iter=5, random_state=0)]
        )
    return out


@case
def linear_networks() -> Any:
    x = noise()[:, :8]
    quick = {"max_iter": 25, "tol": 0.0}
    return several(
        ridge=(LinearAutoencoder(2, ridge=0.2, **quick), x),
        ridge_tied=(LinearAutoencoder(2, ridge=0.2, tied=True, **quick), x),
        tied=(
            LinearAutoencoder(2, tied=True, optimizer="nesterov", **quick),
            x,
            lambda m: [
                m.transform(x[:3]),
                m.inverse_transform(m.transform(x[:3])),
                m.reconstruction_error(x),
            ],
        ),
        ball=(LinearAutoencoder(2, optimizer="heavy_ball", learning_rate=0.1, **quick), x),
        gd=(LinearAutoencoder(2, optimizer="gd", **quick), x),
        adagrad=(LinearAutoencoder(2, optimizer="adagrad", **quick), x),
        adam=(LinearAutoencoder(2, optimizer="adam", **quick), x),
        wild=(LinearAutoencoder(2, optimizer="gd", learning_rate=40.0, max_iter=60), x),
        batches=(
            LinearAutoencoder(2, batch_size=12, optimizer="gd", max_iter=12),
            x,
            lambda m: m.certify(x).to_dict()["facts"],
        ),
        gaps=(
            LinearAutoencoder(1, max_iter=20),
            near(),
            lambda m: m.certify(near()).to_dict()["facts"],
        ),
    )


@case
def singular_vectors() -> Any:
    x = sparse.csr_array(counts())
    return several(
        randomized=(
            TruncatedSVD(3, n_iter=2),
            x,
            lambda m: [m.transform(x), m.explained_variance_ratio_],
        ),
        arpack=(TruncatedSVD(2, algorithm="arpack", tol=1e-6), noise()),
        exact=(TruncatedSVD(2, n_iter=0, n_oversamples=3), noise()),
    )


class Shape:
    """What a plan looks at."""

    def __new__(cls, kind: type, rows: int | None, n: int, nnz: int, itemsize: int) -> Any:
        made = object.__new__(
            type(
                "Shape",
                (kind,),
                {
                    "shape": (rows, n),
                    "nnz": nnz,
                    "dtype": np.dtype(f"f{itemsize}"),
                    "in_memory": True,
                },
            )
        )
        return made


@case
def plans() -> Any:
    sizes = [
        (100, 50),
        (400, 600),
        (600, 400),
        (1000, 30),
        (30, 1000),
        (5000, 1500),
        (1500, 5000),
        (100_000, 100),
        (100_000, 3000),
        (20_000, 20_000),
        (9000, 100_000),
    ]
    out = []
    for rows, n in sizes:
        for k in (0, 2, 10, min(rows, n) * 3 // 4, "auto", 0.9):
            for kind, nnz in (
                (eckart.Dense, rows * n),
                (eckart.Counts, rows * n // 100),
                (eckart.Observed, rows * n // 10),
            ):
                for size in (4, 8):
                    x = Shape(kind, rows, n, nnz, size)
                    chosen = plan.choose(x, k, "auto")
                    costs = plan.costs(x, k)
                    out.append(
                        [
                            chosen.solver,
                            chosen.reason,
                            chosen.passes,
                            chosen.memory,
                            [float(v) for c in costs.values() for v in c],
                        ]
                    )
    return [
        len(out),
        *(
            str([round(v, 12) if isinstance(v, float) else v for v in row[4]]) + row[0] + row[1]
            for row in out[::11]
        ),
    ]
