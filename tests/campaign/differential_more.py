"""More judges of the differential attack: item models, blends, mixed tables, chains, batches,
losses and topics, against formulas written out in NumPy.

Each function draws a problem, fits, and compares with its definition or with a slow method of its
own; ``differential`` calls them in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

import eckart
from campaign import Broken
from eckart.trace import StopReason
from oracle import JUDGE

ROUNDING = 1e-9
"""Share of the squares of the data: thousands of additions in double precision leave far less."""


def likes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, str]:
    """What rows took up, NaN elsewhere; the strengths that a model sees, 0 elsewhere; and how it is
    told so. Empty rows and columns are among them."""
    shape = int(rng.integers(3, 40)), int(rng.integers(2, 15))
    taken = rng.random(shape) < rng.uniform(0.05, 0.7)
    taken[0, 0] = True
    raw = np.where(taken, rng.integers(1, 6, shape), np.nan).astype(
        rng.choice([np.float32, np.float64])
    )
    kind = str(rng.choice(["binary", "raw"]))
    return raw, np.where(taken, raw if kind == "raw" else 1.0, 0.0).astype(np.float64), kind


def items(rng: np.random.Generator) -> str:
    """EASE and SLIM: no weights of each column, found alone by another method, are better by more
    than the certificate says."""
    raw, x, kind = likes(rng)
    n, l2 = x.shape[1], float(rng.choice([0.1, 1.0, 50.0]))
    gram, half = x.T @ x, 0.5 * np.square(x).sum(axis=0)
    if rng.random() < 0.5:
        l1, name, ours = 0.0, "EASE", eckart.EASE(l2, strengths=kind, random_state=0).fit(raw)
        weights = ours.fit_.factors.weights.astype(np.float64)
        limit = None
    else:
        l1, name = float(rng.choice([0.0, 0.1, 2.0])), "SLIM"
        ours = eckart.SLIM(l2, l1=l1, strengths=kind, random_state=0).fit(raw)
        f = ours.fit_.factors
        weights = (
            sparse.csr_array((f.data, f.indices, f.indptr), (n, n)).toarray().astype(np.float64)
        )
        limit = (2 * ours.tol + 1e-9) * half
    best = np.column_stack(
        [(least if name == "EASE" else least_positive)(gram, j, l1, l2) for j in range(n)]
    )
    found, judge = (half + _values(gram, w, l1, l2) for w in (weights, best))
    c, slack = ours.certificate_, ROUNDING * half.sum()
    if found.sum() - judge.sum() > c["gap"] * (1 + 1e-6) + slack:
        raise Broken(
            f"{name} tells a gap of {c['gap']}, and is {found.sum() - judge.sum()} "
            "above other weights"
        )
    if c.holds and limit is not None and (found - judge > limit + slack).any():
        raise Broken(f"{name} holds, and a column is {(found - judge).max()} above other weights")
    if (
        c.holds
        and found.sum() > judge.sum() * (1 + 1e-5) + (0.0 if limit is None else limit.sum()) + slack
    ):
        raise Broken(f"{name} holds at {found.sum()}, other weights are at {judge.sum()}")
    return name


def _values(gram: np.ndarray, w: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """Of every column, less half its squares: 1/2 w^T G w - g_j w + l1 sum w + l2/2 |w|^2."""
    return (
        0.5 * (w * (gram @ w)).sum(axis=0)
        - (gram * w).sum(axis=0)
        + l1 * w.sum(axis=0)
        + 0.5 * l2 * np.square(w).sum(axis=0)
    )


def least(gram: np.ndarray, j: int, l1: float, l2: float) -> np.ndarray:
    """Column j on the others with a ridge, by their normal equations."""
    others = np.delete(np.arange(len(gram)), j)
    w = np.zeros(len(gram))
    w[others] = np.linalg.solve(
        gram[np.ix_(others, others)] + l2 * np.eye(len(others)), gram[others, j]
    )
    return w


def least_positive(gram: np.ndarray, j: int, l1: float, l2: float) -> np.ndarray:
    """Column j on the others, weights >= 0: with C^T C = G + l2 I it is min |C w - C^-T (g - l1)|,
    w >= 0."""
    others = np.delete(np.arange(len(gram)), j)
    w, root = (
        np.zeros(len(gram)),
        np.linalg.cholesky(gram[np.ix_(others, others)] + l2 * np.eye(len(others))),
    )
    w[others] = optimize.nnls(root.T, np.linalg.solve(root, gram[others, j] - l1))[0]
    return w


def graph(rng: np.random.Generator) -> str:
    """SpectralFilter: the frequencies against an SVD of the normalised adjacency, the scores
    against the formula."""
    raw, x, kind = likes(rng)
    k, alpha = int(rng.integers(1, 6)), float(rng.choice([0.0, 0.3, 2.0]))
    model = eckart.SpectralFilter(k, alpha=alpha, strengths=kind, random_state=0).fit(raw)
    with np.errstate(divide="ignore"):
        rows, columns = (
            np.where((d := x.sum(axis=axis)) > 0, d, np.inf) ** -0.5 for axis in (1, 0)
        )
    a = rows[:, None] * x * columns
    v = model.fit_.factors.right.astype(np.float64) * columns[:, None]
    best = float(np.square(np.linalg.svd(a, compute_uv=False)[:k]).sum())
    eps = float(np.finfo(raw.dtype).eps)
    if (
        model.certificate_.holds and np.square(a @ v).sum() < (1 - 1e-3) * best - 1e3 * eps
    ):  # ten times what a fit may miss
        raise Broken(f"SpectralFilter({k}) holds with {np.square(a @ v).sum()} of {best}")
    wanted = x @ (
        a.T @ a
        + alpha * columns[:, None] * v @ (v / np.where(columns > 0, columns, np.inf)[:, None]).T
    )
    if np.abs(model.fold_in(raw) - wanted).max() > 1e3 * eps * (1 + np.abs(wanted).max()):
        raise Broken(
            f"SpectralFilter({k}, alpha={alpha}) scores "
            f"{np.abs(model.fold_in(raw) - wanted).max()} away from its formula"
        )
    return "SpectralFilter"


def blends(rng: np.random.Generator) -> str:
    """Blend: its scores are those of its members, fitted alone to all entries, each row of mean
    square 1, by its shares."""
    raw, _, kind = likes(rng)
    members = {
        "ease": eckart.EASE(float(rng.choice([1.0, 50.0])), strengths=kind, random_state=0),
        "gf-cf": eckart.SpectralFilter(2, strengths=kind, random_state=0),
        "slim": eckart.SLIM(1.0, l1=0.1, strengths=kind, random_state=0),
    }
    model = eckart.Blend(members, random_state=int(rng.integers(100))).fit(raw)
    if abs(sum(model.shares_.values()) - 1) > 1e-9 or min(model.shares_.values()) <= 0:
        raise Broken(f"shares of a Blend are {model.shares_}")
    wanted = np.zeros(raw.shape)
    for name, share in model.shares_.items():
        own = np.asarray(members[name].fit(raw).fold_in(raw), np.float64)
        size = np.sqrt(np.square(own).mean(axis=1, keepdims=True))
        wanted += share * own / np.where(size > 0, size, 1.0)
    if np.abs(model.fold_in(raw) - wanted).max() > 1e4 * float(np.finfo(raw.dtype).eps) * (
        1 + np.abs(wanted).max()
    ):
        raise Broken(f"a Blend of {model.shares_} scores otherwise than its members")
    if (
        model.certificate_.holds
        and model.certificate_["gain over the best member"] < 0
        and len(model.shares_) > 1
    ):
        raise Broken(
            f"a Blend holds, and its gain is {model.certificate_['gain over the best member']}"
        )
    return "Blend"


def tables(rng: np.random.Generator) -> str:
    """MixedTable of numbers: the objective is that of its formula, and quasi-Newton steps from a
    point that holds gain little."""
    n, rows = int(rng.integers(2, 8)), int(rng.integers(8, 50))
    x = rng.standard_normal((rows, 2)) @ rng.standard_normal((2, n)) + rng.choice(
        [0.1, 1.0]
    ) * rng.standard_normal((rows, n))
    x = x * 10.0 ** rng.integers(-4, 5) + rng.choice([0.0, 1e3])
    x[rng.random(x.shape) < rng.uniform(0, 0.5)] = np.nan
    k, l2 = int(rng.integers(1, n + 1)), float(rng.choice([1.0, 10.0]))
    model = eckart.MixedTable(
        k, l2=l2, losses={f"x{j}": "squared" for j in range(n)}, random_state=0
    ).fit(x)
    f, parts = model.fit_.factors, [part for part in model.parts_ if not part.cycle]
    columns = [int(part.name[1:]) for part in parts]
    y = (x[:, columns] - [part.offset for part in parts]) / [part.scale for part in parts]
    start = np.concatenate([f.weights.ravel(), f.mean, np.log(f.noise)])
    value, _ = factor_objective(start, y, f.k, l2)
    told, seen = model.certificate_["objective"], int((~np.isnan(y)).sum())
    if abs(value - told) > 1e-8 * (abs(told) + seen):
        raise Broken(f"MixedTable tells an objective of {told}, its formula gives {value}")
    floor = np.full(len(start), -np.inf)
    floor[-len(f.noise) :] = np.log(1e-8)  # the least noise of a score
    room = np.column_stack([floor, np.full(len(start), np.inf)])
    better = optimize.minimize(
        factor_objective, start, (y, f.k, l2), jac=True, method="L-BFGS-B", bounds=room
    )
    # ten times what is said of real tables; and a nat in all, which is what one parameter costs by
    # AIC: eleven rows can wait on a flat place for a third of it
    if model.certificate_.holds and value - better.fun > 1e-2 * seen + 1.0:
        raise Broken(
            f"MixedTable({k}, l2={l2}) holds at {value}, L-BFGS goes to {better.fun}; "
            f"{seen} seen scores"
        )
    return "MixedTable" if model.certificate_.holds else "MixedTable does not hold"


def factor_objective(at: np.ndarray, y: np.ndarray, k: int, l2: float) -> tuple[float, np.ndarray]:
    """-log p(seen scores) + l2/2 sum |w_j|^2 / psi_j + prior of psi, and its gradient by W, mu and
    log psi."""
    n = y.shape[1]
    w, mu, psi = at[: n * k].reshape(n, k), at[n * k : n * k + n], np.exp(at[n * k + n :])
    norms = np.square(w).sum(axis=1)
    total = 0.5 * float((l2 * norms / psi + (2 + k) * np.log(psi) + 0.1 / psi).sum())
    dw, dmu, dpsi = (
        l2 * w / psi[:, None],
        np.zeros(n),
        0.5 * ((2 + k) / psi - (l2 * norms + 0.1) / psi**2),
    )
    for row in y:
        o = np.flatnonzero(~np.isnan(row))
        if not len(o):
            continue
        inverse = np.linalg.inv(w[o] @ w[o].T + np.diag(psi[o]))
        away = inverse @ (row[o] - mu[o])
        total += 0.5 * float(
            len(o) * np.log(2 * np.pi) - np.linalg.slogdet(inverse)[1] + (row[o] - mu[o]) @ away
        )
        slope = 0.5 * (inverse - np.outer(away, away))
        dw[o] += 2 * slope @ w[o]
        dmu[o] -= away
        dpsi[o] += np.diagonal(slope)
    return total, np.concatenate([dw.ravel(), dmu, dpsi * psi])


def chains(rng: np.random.Generator) -> str:
    """BayesianMF and TimeFactors by the compiled engine against the oracle: the same draws up to
    rounding."""
    x = rng.standard_normal((int(rng.integers(4, 20)), 2)) @ rng.standard_normal(
        (2, int(rng.integers(5, 15)))
    )
    x = x + 0.3 * rng.standard_normal(x.shape)
    x[rng.random(x.shape) < rng.uniform(0, 0.5)] = np.nan
    x[0, 0] = 1.0
    options: dict[str, Any] = {
        "n_samples": 4,
        "burn_in": int(rng.integers(0, 6)),
        "thin": 1,
        "random_state": int(rng.integers(100)),
    }
    if rng.random() < 0.5:
        kind: Any = eckart.TimeFactors
        options["period"] = [None, "auto", 3][int(rng.integers(3))]
    else:
        kind = eckart.BayesianMF
        options |= {
            "tails": str(rng.choice(["normal", "heavy"])),
            "noise": str(rng.choice(["common", "row", "column", "both"])),
        }
    k = int(rng.integers(1, 4))
    ours, plain = (kind(k, engine=engine, **options).fit(x) for engine in ("cpu", JUDGE))
    i, j = np.indices(x.shape).reshape(2, -1)
    for a, b in zip(
        ours.predict(i, j, return_std=True), plain.predict(i, j, return_std=True), strict=True
    ):
        # rounding grows by a factor from draw to draw; ten sweeps leave nine digits of sixteen
        if np.abs(a - b).max() > 1e-7 * (1 + np.abs(b).max()):
            raise Broken(
                f"{kind.__name__}({options}) is {np.abs(a - b).max()} away from the oracle"
            )
    return kind.__name__


def batches(rng: np.random.Generator) -> str:
    """MiniBatchNMF: what its certificate is about, W given H, against non-negative least squares
    row by row."""
    rows, n, k = int(rng.integers(4, 60)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
    x = rng.gamma(0.5, 1.0, (rows, k)) @ rng.gamma(0.5, 1.0, (k, n)) + rng.choice(
        [0.0, 0.1]
    ) * rng.random((rows, n))
    x = x * 10.0 ** rng.integers(-6, 7)
    model = eckart.MiniBatchNMF(
        k, batch_size=int(rng.integers(1, 20)), max_iter=30, random_state=0
    ).fit(x)
    h = model.components_.astype(np.float64)
    best = 0.5 * sum(optimize.nnls(h.T, row)[1] ** 2 for row in x)
    told, size = model.certificate_["objective"], float(np.square(x).sum())
    if told < best * (1 - 1e-9) - 1e-12 * size:
        raise Broken(
            f"MiniBatchNMF({k}) tells {told}, and no W reaches less than {best} with its H"
        )
    # the residual, squared, is about the share of F (or of a ten-thousandth of the squares) that is
    # left to gain: a hundred times its limit
    if model.certificate_.holds and told - best > 100 * 1e-2**2 * (best + 0.5e-4 * size):
        raise Broken(
            f"MiniBatchNMF({k}) holds at {told}, non-negative least squares with its H "
            f"are at {best}"
        )
    return "MiniBatchNMF"


def losses(rng: np.random.Generator) -> str:
    """SoftImpute under the logistic loss: proximal steps written out end above its bound, and not
    below its answer."""
    shape = int(rng.integers(3, 25)), int(rng.integers(3, 12))
    s = 2 * rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1]))
    x = np.where(
        rng.random(shape) < rng.uniform(0.3, 1.0), rng.random(shape) < 1 / (1 + np.exp(-s)), np.nan
    ).astype(float)
    x[:2, 0] = 0.0, 1.0
    seen, sign = ~np.isnan(x), 2 * np.nan_to_num(x) - 1
    tau = float(rng.uniform(0.1, 0.9)) * float(np.linalg.norm(np.where(seen, 0.5 * sign, 0.0), 2))
    model = eckart.SoftImpute(tau=tau, loss="logistic", normalise=None, random_state=0).fit(x)
    b = np.zeros(shape)
    for _ in range(400):  # the curvature is at most 1/4
        u, d, vt = np.linalg.svd(
            b + 4 * np.where(seen, sign / (1 + np.exp(sign * b)), 0.0), full_matrices=False
        )
        d = np.maximum(d - 4 * tau, 0)
        b = (u * d) @ vt
    other = float(np.logaddexp(0, -sign * b)[seen].sum() + tau * d.sum())
    c = model.certificate_
    if other < c["no matrix is below"] * (1 - ROUNDING):
        raise Broken(
            "SoftImpute(logistic) says that nothing is below "
            f"{c['no matrix is below']}, proximal steps are at {other}"
        )
    if c.holds and c["value"] > other * (1 + 2e-3):  # twice the gap that it asks for
        raise Broken(f"SoftImpute(logistic) holds at {c['value']}, proximal steps are at {other}")
    return "SoftImpute of a loss"


def topics(rng: np.random.Generator) -> str:
    """PLSA: the likelihood that it tells is that of its factors, and an EM step written out gains
    what its certificate says at most."""
    rows, n, k = int(rng.integers(2, 30)), int(rng.integers(2, 15)), int(rng.integers(1, 4))
    x = rng.poisson(rng.gamma(0.5, 2.0, (rows, k)) @ rng.gamma(0.5, 2.0, (k, n))).astype(float)
    x[0, 0] += 1
    model = eckart.PLSA(k, random_state=0, max_iter=int(rng.choice([3, 200]))).fit(x)
    topic, words = model.transform(x).astype(np.float64), model.components_.astype(np.float64)
    words = words / words.sum(axis=1, keepdims=True)
    if model.fit_.trace.reason is not StopReason.CONVERGED:
        return "PLSA did not end"
    ratio = np.divide(x, topic @ words, out=np.zeros_like(x), where=x > 0)
    first, total = topic * (ratio @ words.T), x.sum()
    second = words * (topic.T @ ratio)
    before = float((x * np.log(np.where(x > 0, topic @ words, 1.0))).sum() / total)
    first, second = (a / np.maximum(a.sum(axis=1, keepdims=True), 1e-300) for a in (first, second))
    after = float((x * np.log(np.where(x > 0, first @ second, 1.0))).sum() / total)
    if (
        abs(before - model.certificate_["log-likelihood of a token"]) > 1e-2
    ):  # transform solves the documents again, to its own tolerance
        raise Broken(
            f"PLSA({k}) tells {model.certificate_['log-likelihood of a token']}, its "
            f"factors give {before}"
        )
    if model.certificate_.holds and after - before > 1e-2:  # ten times what its certificate allows
        raise Broken(f"PLSA({k}) holds, and a step of EM gains {after - before} nats a token")
    return "PLSA"


MORE = (items, graph, blends, tables, chains, batches, losses, topics)
