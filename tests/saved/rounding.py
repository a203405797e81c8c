"""How far an answer may be from the stored one on another machine: the rounding of its sums, and
nothing more.

A sum of n products a_p b_p, whatever its order and whether or not products and sums are fused, is
within n eps sum |a_p b_p| of the truth (Higham, "Accuracy and Stability of Numerical Algorithms",
2002, section 3.1). AVX2, AVX-512 and plain CPUs add in other orders, so two of them differ by at
most twice that; another factor of two is left to exp, log and pow, which are a few units in the
last place off. A linear system multiplies errors by its condition number, an iteration adds one
error for each step. So

    tolerance = 4 eps terms size condition,     size >= sum |a_p b_p|.

An answer without a tolerance only reads, divides or takes roots of stored numbers, or is an order,
a label, a text: it is the same to the last bit. ``make.py`` works the tolerances out from the model
as it was fitted and stores them beside the answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Bounds = dict[str, tuple[float, float, float]]
KEPT = (
    "components_",
    "mean_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "noise_variance_",
    "encoder_",
    "decoder_",
    "loss_curve_",
    "held_out_curve_",
    "filters_",
    "classes_",
    "row_biases_",
    "column_biases_",
    "row_factors_",
    "column_factors_",
    "objective_",
    "tau_",
    "weights_",
    "lower_bound_",
    "lower_bounds_",
    "means_",
    "covariances_",
    "loadings_",
    "noise_variances_",
    "sizes_",
    "doc_topic_prior_",
    "topic_word_prior_",
    "reconstruction_err_",
    "counts",
)
"""Numbers that are read off the file (a quotient and a root are the same on every CPU)."""


DOUBLE = ("transform of gaps", "score_samples of gaps", "impute")
"""Answers about rows with gaps are computed in double precision from float32 factors too."""


def tolerances(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> dict[str, float]:
    """A tolerance for each answer that is computed; ``file`` holds the arrays of the model file."""
    kind = type(model).__name__
    bounds = BOUNDS[kind](model, inputs, answers, file)
    single = kind in ("SkipGram", "GloVe", "PMI") or any(
        a.dtype == np.float32 for n, a in file.items() if _main(n)
    )
    out = {}
    for name, a in answers.items():
        if name in bounds:
            terms, size, condition = bounds[name]
            largest = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
            eps = float(np.finfo(np.float32 if single and name not in DOUBLE else np.float64).eps)
            out[name] = 4 * eps * terms * size * condition + (
                float(np.finfo(a.dtype).eps) * largest if a.dtype.kind == "f" else 0.0
            )
            limit = 1e-2 if np.float32 in (a.dtype, np.float32 if single else None) else 1e-6
            assert out[name] <= limit * max(largest, 1e-3), (kind, name, out[name])
        elif name == "outlier quantile":
            out[name] = 1.01 / 4096  # one of so many draws, on the edge, may change sides
        else:
            assert a.dtype.kind != "f" or name in KEPT or name.startswith("parameters "), (
                kind,
                name,
            )
    return out


def _main(name: str) -> bool:
    """Arrays in whose precision the answers are computed (networks compute in that of the data)."""
    return name in ("components", "left", "vectors")


def _norm(x: np.ndarray) -> float:
    """The longest row, gaps left out."""
    return float(np.linalg.norm(np.nan_to_num(np.asarray(x, np.float64)), axis=1).max())


def _linear(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    u, mean = file["components"].astype(np.float64), file["mean"].astype(np.float64)
    k, n = u.shape
    var = answers["explained_variance_"]
    noise = float(answers["noise_variance_"])
    reach = max(_norm(inputs["x"]), _norm(inputs["gaps"])) + float(
        np.linalg.norm(mean)
    )  # sum |d_j u_j| <= |d| |u| = |d|
    turned = getattr(model, "rotation", None)
    scaled = 1 / np.sqrt(var[-1]) if turned or getattr(model, "whiten", False) else 1.0
    # the angle of varimax is a quotient of fourth moments, of which cancellation takes up to three
    # digits
    turn = 1e3 if turned else 1.0
    solve = float(var[0] / noise)  # of W^T W + s I over observed columns
    codes = float(np.abs(inputs["codes"]).sum(axis=1).max())
    weight = np.sqrt(var[0]) if scaled != 1.0 else 1.0
    return {
        "transform": (n, reach * scaled, turn),
        "transform of gaps": (n, reach * scaled, turn * solve),
        "inverse_transform": (k, codes * weight + float(np.abs(mean).max()), turn),
        "reconstruction_error": (n, reach**2, 1.0),
    }


def _pca(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    out = _linear(model, inputs, answers, file)
    n = file["components"].shape[1]
    var, noise = answers["explained_variance_"], float(answers["noise_variance_"])
    solve = float(var[0] / noise)
    reach = max(_norm(inputs["x"]), _norm(inputs["gaps"])) + float(
        np.linalg.norm(file["mean"].astype(np.float64))
    )
    # quantiles of F and chi2 come from an iteration of SciPy, good to about twelve digits
    chances = 1e4
    more: Bounds = {
        "impute": (n, reach, solve),
        "score_samples": (n, reach**2 / noise + n * 10, 1.0),
        "score_samples of gaps": (n, reach**2 / noise + n * 10, solve),
        "spe": (n, reach**2, 1.0),
        "t2": (n, reach**2 / var[-1], 1.0),
        "spe limit": (1, float(answers["spe limit"]), chances),
        "t2 limit": (1, float(answers["t2 limit"]), chances),
        "contributions": (n, reach**2, 1.0),
        "get_covariance": (n, float(var[0]), 1.0),
        "get_precision": (n, 1 / noise, 1.0),
    }
    # products of stored numbers and roots, then a rotation
    more["loadings_"] = (n, float(np.sqrt(var[0])), 1e3 if model.rotation else 1.0)
    return out | more


def _truncated(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    k, n = file["components"].shape
    size = float(file["scatter"][0]) + float(np.sum(file["column_mean"] ** 2))
    return {
        "explained_variance_": (n, size, 1.0),
        "transform": (n, _norm(inputs["x"]), 1.0),
        "inverse_transform": (k, float(np.abs(inputs["codes"]).sum(axis=1).max()), 1.0),
    }


def _robust(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    k = len(file["directions"])
    size = float(np.abs(file["codes"]).sum(axis=1).max()) + float(np.abs(file["mean"]).max())
    return {
        "low_rank_": (k, size, 1.0),
        "sparse_": (1, float(np.abs(file["sparse.data"]).max(initial=0.0)), 1.0),
        "singular_values_": (1, float(np.sqrt(file["scatter"][0])), 1.0),
        "inverse_transform": (k, float(np.abs(inputs["codes"]).sum(axis=1).max()) + size, 1.0),
    }


def _network(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    """Errors of a layer grow by sum |w| of the layers behind it at most (activations have slope 1):
    |x| prod_l max_i (sum_j |w_ij| + |b_i|) bounds all sums."""
    weights = {name: a.astype(np.float64) for name, a in file.items() if name.startswith("weight.")}
    matrices = [a for a in weights.values() if a.ndim > 1]
    growth = {"encoder": 1.0, "decoder": 1.0}
    for name, a in weights.items():
        if a.ndim < 2:
            continue
        # a transposed convolution has its outputs second; the larger of both sums bounds either
        sums = [
            np.abs(a).sum(axis=tuple(i for i in range(a.ndim) if i != axis)).max()
            for axis in (0, 1)
        ]
        bias = weights.get(name.removesuffix("weight") + "bias", np.zeros(1))
        part = "decoder" if ".decoder." in name or ".decode" in name else "encoder"
        growth[part] *= max(1.0, (max(sums) if a.ndim > 2 else sums[0]) + float(np.abs(bias).max()))
    spread, mean = file["spread"].astype(np.float64), file["mean"].astype(np.float64)
    alive = spread > 0
    x = np.concatenate([inputs["x"], inputs.get("gaps", inputs["x"])])
    size = max(1.0, float(np.nanmax(np.abs((x - mean)[:, alive] / spread[alive]))) + 1.0)
    back = float(spread.max() + np.abs(mean).max())
    terms = sum(a[0].size + 1 for a in matrices)
    whole = growth["encoder"] * growth["decoder"]
    # a network that has met no gaps fills them in rounds, each of which hands its errors to the
    # next; trained ones shrink them
    rounds = 10.0
    out: Bounds = {
        "transform": (terms, size * growth["encoder"], 1.0),
        "transform of gaps": (terms, size * growth["encoder"], rounds),
        "reconstruct": (terms, size * whole * back, 1.0),
        "impute": (terms, size * whole * back, rounds),
        "reconstruction_error": (terms, size * whole * back, 2 * back * size * np.sqrt(len(mean))),
        "predict_proba": (terms, size * whole, 1.0),
    }
    if "codes" in inputs:
        codes = max(float(np.abs(inputs["codes"]).max()), 4.0)
        out |= dict.fromkeys(
            ("inverse_transform", "sample"), (terms, codes * growth["decoder"] * back, 1.0)
        )
    if "extra.scale" in file:
        out["predict"] = (
            terms,
            size * whole * float(file["extra.scale"].max())
            + float(np.abs(file["extra.offset"]).max()),
            1.0,
        )
    return out


def _completer(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    left, right = file["left"].astype(np.float64), file["right"].astype(np.float64)
    k, columns = left.shape[1], len(right)
    stretch = [
        float(np.abs(file.get(name, np.ones(1))).max()) for name in ("row_scale", "column_scale")
    ]
    offsets = [
        float(np.abs(file.get(name, np.zeros(1))).max()) for name in ("row_bias", "column_bias")
    ]
    mean, data = abs(float(model.mean_)), float(np.abs(file["observed.data"]).max())
    size = (
        float((np.abs(left) @ np.abs(right).T).max()) * stretch[0] * stretch[1]
        + offsets[0] * stretch[1]
        + offsets[1]
        + mean
    )
    at = [np.flatnonzero(~np.isnan(row)) for row in inputs["new"]]
    at.append(np.arange(columns))
    # the ridge only makes these better; a column of ones stands for the bias that is solved for too
    ones = (
        np.ones((columns, 1))
        if getattr(model, "biases", False) and getattr(model, "feedback", "") == "explicit"
        else np.zeros((columns, 0))
    )
    design = np.hstack([right, ones])
    if hasattr(model, "posterior_"):  # every draw has a system of its own
        draws = model.posterior_.size
        blocks = right.reshape(columns, draws, -1)
        solve = max(
            np.linalg.cond(np.hstack([blocks[rows, t], np.ones((len(rows), 1))])) ** 2
            for rows in at
            for t in range(draws)
        )
    elif getattr(model, "feedback", "") == "implicit":  # w0 V^T V + sum_p alpha a_p v_p v_p^T
        solve = np.linalg.cond(right) ** 2 * (1 + model.alpha * data / model.unobserved_weight)
    else:
        solve = max(np.linalg.cond(design[rows]) ** 2 for rows in at)
    new = (columns + k, size + data, solve)
    codes = np.abs(answers["fold_in"]).max()
    out: Bounds = {
        "predict": (k + 4, size, 1.0),
        "predict unknown": (k + 4, size, 1.0),
        "predict new rows": new,
        "update": new,
        "transform": new,
        "fold_in": (columns + k, float(codes) + 1.0, solve),
        "complete": (k + 4, size, 1.0),
        "recommend scores": (k + 4, size, 1.0),
        "recommend among scores": (k + 4, size, 1.0),
        "recommend new rows scores": new,
        "similar rows scores": (2 * k, 1.0, 1.0),
        "similar columns scores": (2 * k, 1.0, 1.0),
    }
    row = int(inputs["rows"][0])
    seen = file["observed.indices"][file["observed.indptr"][row] : file["observed.indptr"][row + 1]]
    why = (
        solve
        if getattr(model, "feedback", "") == "implicit"
        else max(solve, np.linalg.cond(design[seen]) ** 2)
    )
    out |= dict.fromkeys(("explain", "explain shares"), (columns + k, size + data, why))
    if "new columns" in inputs:
        tall = np.hstack([left, np.ones((len(left), ones.shape[1]))])
        turned = max(np.linalg.cond(tall[~np.isnan(c)]) ** 2 for c in inputs["new columns"].T)
        out["fold_in columns"] = (
            len(left) + k,
            float(np.abs(answers["fold_in columns"]).max()) + 1.0,
            turned,
        )
    if "singular_values_" in answers:
        out["singular_values_"] = (len(left), float(answers["singular_values_"].max()), 1.0)
    if "deviation" in answers:
        spread = float(answers["deviation of the mean"].min())
        lost = (size + data) / spread  # a variance is a sum of squares of small differences
        out |= dict.fromkeys(
            ("deviation", "deviation of the mean", "interval low", "interval high"),
            (k, size + data, lost),
        )
        out["noise_variance_"] = (k, float(answers["noise_variance_"]) * 10, 1.0)
    return out


def _mixture(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    n = inputs["x"].shape[1]
    family = getattr(model, "family", "gaussian")
    if family.startswith("gaussian"):
        means = answers.get("means_", answers.get("parameters means")).astype(np.float64)
        spread = _covariances(model, answers, n)
        values = np.linalg.eigvalsh(spread)
        least, condition = float(values.min()), float((values[:, -1] / values[:, 0]).max())
        reach = max(_norm(inputs["x"]), _norm(means), _norm(inputs.get("gaps", inputs["x"]))) * 2
        size = reach**2 / least + n * 10
    else:
        least, condition, reach = 1.0, 1.0, 1.0
        size = float(np.abs(inputs["x"]).sum(axis=1).max()) * 30 + n * 10  # x log p, p >= 1e-13
    log = (n * n, size, condition)
    rows = len(inputs["x"])
    out: Bounds = {
        "score_samples": log,
        "outlier_score": log,
        "predict_proba": log,  # d share = share (d log p - mean of d log p)
        "bic": (n * n * 2 * rows, size, condition),
        "aic": (n * n * 2 * rows, size, condition),
        "impute": (n * n, reach, condition),
        "impute variance": (n * n, reach**2, condition),
        "precisions_": (n * n, 1 / least, condition),
    }
    if family.startswith("gaussian"):
        out["sample"] = (n * n, reach * 5, condition)
    else:
        out["sample"] = (1.0, 0.0, 1.0)  # whole numbers
    return out


def _covariances(model: Any, answers: Arrays, n: int) -> np.ndarray:
    """k x n x n from whatever the model keeps."""
    if "covariances_" in answers:
        c = answers["covariances_"].astype(np.float64)
        kind = model.covariance_type
    elif "noise_variances_" in answers:
        w = answers["loadings_"].astype(np.float64)
        return w @ np.swapaxes(w, 1, 2) + np.stack(
            [np.diag(v) for v in answers["noise_variances_"].astype(np.float64)]
        )
    else:
        kind = model.family.partition(" ")[2] or "full"
        c = answers.get("parameters spread", np.ones(1)).astype(np.float64)
    if kind == "full":
        return c
    if kind == "tied":
        return c.reshape(1, n, n)
    if kind == "diag":
        return np.stack([np.diag(v) for v in c])
    return np.stack([v * np.eye(n) for v in (c.ravel() if kind == "spherical" else np.ones(1))])


def _topics(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    k, n = file["counts"].shape
    steps = 200.0  # of the fold-in at most, each with its own rounding
    return {
        "topic_word_": (n, 1.0, 1.0),
        "transform": (n + k, 1.0, steps),
        "score": (n + k, 1.0 + float(abs(answers["score"])), steps),
    }


def _parts(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    right = file["right"].astype(np.float64)
    n, k = right.shape
    solve = np.linalg.cond(right) ** 2
    size = float(answers["transform"].max()) + 1.0
    form = float(right.max()) * n
    if model.beta_loss != "frobenius":
        # solved to a step of 4 eps at which the error left is about step / (1 - rate); the rate of
        # these steps is above 0.99
        solve *= 1e3
    return {
        "transform": (n + k, size, solve),
        "inverse_transform": (k, float((np.abs(inputs["codes"]) @ right.T).max()), 1.0),
        "normal form shares": (n + k, 1.0, 1.0),
        "normal form parts": (n + k, max(1.0, form / n), 1.0),
    }


def _words(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    k = file["vectors"].shape[1]
    out: Bounds = {
        "neighbours scores": (2 * k, 1.0, 1.0),
        "analogy scores": (4 * k, 3.0, 1.0),
        "similarity": (2 * k, 1.0, 1.0),
        "transform": (
            inputs["texts"].shape[-1] + 40,
            float(np.abs(answers["components_"]).max()),
            1.0,
        ),
    }
    if type(model).__name__ == "PMI" and model.add_context:
        # a power of the singular values
        out["components_"] = (4, 2 * float(np.abs(answers["components_"]).max()), 1.0)
    return out


def _items(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    """Scores are sums over the n columns that a row may have, of weights that are sums over rows
    (A^T A) or over k components."""
    n, rows = model.fit_.factors.n, model.fit_.factors.n_rows
    size = n * float(np.abs(answers["single"]).max())
    scores = ("predict", "fold_in", "transform", "explain", "single", "recommend new rows scores")
    return dict.fromkeys(scores, (n + rows, size, 1.0))


def _series(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    """Sums over the draws and, in each, over factors; powers of phi are a few units in the last
    place off for each step. Cells are read off the file."""
    terms = float(len(file["left"]) * (file["left"].shape[2] + 4))
    inner = (
        1 + np.abs(file["profile"]).max() + np.abs(file["left"]).max() * np.abs(file["last"]).max()
    )
    size = float(np.abs(file["centre"]).max() + file["scale"].max() * inner)
    names = ("deviation", "low", "high", "forecast", "forecast deviation", "predict", "impute")
    return dict.fromkeys(names, (terms, size, 16.0))


def _mixed(model: Any, inputs: Arrays, answers: Arrays, file: Arrays) -> Bounds:
    """Codes solve k equations, I + W^T psi^-1 W, whose condition is at most that sum; all answers
    are smooth functions of them, of slope about the size of an answer."""
    w, noise = file["weights"], file["variances"]
    condition = 1.0 + float(((w**2).sum(axis=1) / noise).sum())
    asked = ("transform", "impute numbers", "probabilities", "explain")
    return {
        name: (len(w) + w.shape[1], max(1.0, float(np.abs(answers[name]).max())), condition)
        for name in asked
    }


BOUNDS = {
    "PCA": _pca,
    "IncrementalPCA": _pca,
    "TruncatedSVD": _truncated,
    "LatentDirichletAllocation": _topics,
    "RobustPCA": _robust,
    "LinearAutoencoder": _linear,
    **dict.fromkeys(
        ("Autoencoder", "ConvAutoencoder", "NetworkClassifier", "NetworkRegressor"), _network
    ),
    **dict.fromkeys(("ALS", "BayesianMF", "SVP", "SVT", "SoftImpute", "ExactRecovery"), _completer),
    **dict.fromkeys(("EASE", "SLIM", "SpectralFilter", "Blend"), _items),
    "TimeFactors": _series,
    "MixedTable": _mixed,
    **dict.fromkeys(("GaussianMixture", "Mixture"), _mixture),
    **dict.fromkeys(("PLSA", "LDA"), _topics),
    "NMF": _parts,
    "MiniBatchNMF": _parts,
    **dict.fromkeys(("GloVe", "SkipGram", "PMI"), _words),
}
