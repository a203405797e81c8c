"""What a saved model is asked: the same questions when its file was written (``make.py``) and in
every test since.

``ask(model, inputs)`` gives one array for each question: numbers, positions, truth values or texts,
never objects, so that a file without pickle holds them. Public names only: this runs on whatever
the library has become.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd

import eckart

Arrays = dict[str, np.ndarray]


def ask(model: Any, inputs: Arrays) -> Arrays:
    """Answers by name, to the questions that a model of this class understands."""
    answers = QUESTIONS[type(model).__name__](model, inputs)
    return {name: _plain(value) for name, value in answers.items()}


def _plain(value: Any) -> np.ndarray:
    """An array of numbers or texts; None among ids becomes an empty text."""
    a = np.asarray(value)
    if a.dtype.kind == "M":
        return a.astype(str)
    if a.dtype == object:
        return np.array(["" if v is None else str(v) for v in a.ravel()], dtype=np.str_).reshape(
            a.shape
        )
    return a


def _kept(model: Any, *names: str) -> dict[str, Any]:
    """Attributes that are read off the model."""
    found = {name: getattr(model, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _rows(model: Any, x: np.ndarray) -> Any:
    """Rows with the names of the columns, where the model knows them."""
    names = getattr(model, "feature_names_in_", None)
    return x if names is None else pd.DataFrame(x, columns=list(names))


def linear(model: Any, inputs: Arrays) -> dict[str, Any]:
    x, gaps = _rows(model, inputs["x"]), _rows(model, inputs["gaps"])
    out = _kept(
        model,
        "components_",
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "noise_variance_",
        "n_components_",
        "n_samples_",
        "n_iter_",
    )
    return out | {
        "transform": model.transform(x),
        "transform of gaps": model.transform(gaps),
        "inverse_transform": model.inverse_transform(inputs["codes"]),
        "reconstruction_error": model.reconstruction_error(x),
    }


def pca(model: Any, inputs: Arrays) -> dict[str, Any]:
    x, gaps = _rows(model, inputs["x"]), _rows(model, inputs["gaps"])
    judged = model.outliers(x)
    return linear(model, inputs) | {
        "impute": model.impute(gaps),
        "score_samples": model.score_samples(x),
        "score_samples of gaps": model.score_samples(gaps),
        "spe": judged.spe,
        "t2": judged.t2,
        "spe limit": judged.spe_limit,
        "t2 limit": judged.t2_limit,
        "flagged": judged.flagged,
        "contributions": model.contributions(x),
        "get_covariance": model.get_covariance(),
        "get_precision": model.get_precision(),
        "loadings_": model.loadings_,
        "top features": [[name for name, _ in top] for top in model.top_features(3)],
    }


def truncated(model: Any, inputs: Arrays) -> dict[str, Any]:
    return _kept(model, "components_", "singular_values_") | {
        "explained_variance_": model.explained_variance_,
        "transform": model.transform(_rows(model, inputs["x"])),
        "inverse_transform": model.inverse_transform(inputs["codes"]),
    }


def robust(model: Any, inputs: Arrays) -> dict[str, Any]:
    return _kept(model, "components_", "mean_", "singular_values_") | {
        "low_rank_": model.low_rank_,
        "sparse_": model.sparse_.toarray(),
        "inverse_transform": model.inverse_transform(inputs["codes"]),
    }


def linear_autoencoder(model: Any, inputs: Arrays) -> dict[str, Any]:
    return linear(model, inputs) | _kept(model, "encoder_", "decoder_")


def coder(model: Any, inputs: Arrays) -> dict[str, Any]:
    x, gaps = _rows(model, inputs["x"]), _rows(model, inputs["gaps"])
    out = _kept(model, "loss_curve_", "held_out_curve_", "n_iter_", "n_components_")
    out |= {
        "transform": model.transform(x),
        "transform of gaps": model.transform(gaps),
        "inverse_transform": model.inverse_transform(inputs["codes"]),
        "reconstruct": model.reconstruct(x),
        "impute": model.impute(gaps),
        "reconstruction_error": model.reconstruction_error(x),
    }
    # as it was fitted; the parameter may be set for the next fit
    if model.fit_.factors.architecture["variational"]:
        out["sample"] = model.sample(4, random_state=1)
    return out


def conv_coder(model: Any, inputs: Arrays) -> dict[str, Any]:
    return coder(model, inputs) | _kept(model, "filters_")


def classifier(model: Any, inputs: Arrays) -> dict[str, Any]:
    x = _rows(model, inputs["x"])
    out = _kept(model, "classes_", "loss_curve_", "held_out_curve_", "n_iter_")
    return out | {"predict": model.predict(x), "predict_proba": model.predict_proba(x)}


def regressor(model: Any, inputs: Arrays) -> dict[str, Any]:
    return _kept(model, "loss_curve_", "held_out_curve_", "n_iter_") | {
        "predict": model.predict(_rows(model, inputs["x"]))
    }


def completer(model: Any, inputs: Arrays) -> dict[str, Any]:
    """``new`` are new rows with gaps, ``new columns`` new columns; ``rows`` and ``columns`` are
    positions, asked for by their ids."""
    row_ids, column_ids = model.row_ids, model.column_ids
    rows, columns = row_ids.names(inputs["rows"]), column_ids.names(inputs["columns"])
    named = model.fit_.factors.columns is not None
    new = (
        pd.DataFrame(inputs["new"], columns=list(model.fit_.factors.columns))
        if named
        else inputs["new"]
    )
    new = eckart.observed(new)
    best, few = (
        model.recommend(rows, 4),
        model.recommend(rows, 2, candidates=columns, exclude_seen=False),
    )
    fresh = model.recommend(X=new, n=3)
    like_rows, like_columns = model.similar(rows=rows, n=3), model.similar(columns=columns, n=3)
    ids, filled = (np.concatenate(parts) for parts in zip(*model.complete(rows)))
    out = _kept(model, "mean_", "row_biases_", "column_biases_", "n_iter_")
    for name in (
        "row_factors_",
        "column_factors_",
        "objective_",
        "rank_",
        "singular_values_",
        "tau_",
    ):
        if getattr(type(model), name, None) is not None:
            out[name] = getattr(model, name)
    stranger = "nobody" if named and isinstance(column_ids.names([0])[0], str) else 10**6
    out |= {
        "row ids": row_ids.names(np.arange(row_ids.size)),
        "column ids": column_ids.names(np.arange(column_ids.size)),
        "predict": model.predict(rows, columns),
        "predict new rows": model.predict(new),
        "transform": model.transform(new),
        "fold_in": model.fold_in(new),
        "complete ids": ids,
        "complete": filled,
        "recommend": best.columns,
        "recommend positions": best.positions,
        "recommend scores": best.scores,
        "recommend among": few.columns,
        "recommend among scores": few.scores,
        "recommend new rows": fresh.columns,
        "recommend new rows scores": fresh.scores,
        "similar rows": like_rows.columns,
        "similar rows scores": like_rows.scores,
        "similar columns": like_columns.columns,
        "similar columns scores": like_columns.scores,
    }
    if type(model).__name__ != "BayesianMF":  # it could not explain when the files were written
        why = model.explain(rows[0], columns[0], 3)
        out |= {
            "explain": [why.prediction, why.base],
            "explain columns": [column for column, _, _ in why.shares],
        }
        out["explain shares"] = [share for _, _, share in why.shares]
    if column_ids.names([0]).dtype.kind != "M":
        out["predict unknown"] = model.predict([rows[0]], [stranger], unknown="mean")
    if "new columns" in inputs:
        out["fold_in columns"] = model.fold_in(inputs["new columns"], axis="columns")
    if not named:  # new rows get the next positions
        out["update"] = (
            deepcopy(model)
            .update(_next(new, row_ids.size))
            .predict(np.full(3, row_ids.size), columns[:3])
        )
    return out


def _next(x: Any, start: int) -> Any:
    return eckart.Observed(
        x.indptr, x.indices, x.data, x.n_columns, np.arange(start, start + x.shape[0]), x.columns
    )


def bayesian(model: Any, inputs: Arrays) -> dict[str, Any]:
    rows, columns = model.row_ids.names(inputs["rows"]), model.column_ids.names(inputs["columns"])
    low, high = model.interval(rows, columns, 0.8)
    return completer(model, inputs) | {
        "deviation": model.deviation(rows, columns),
        "deviation of the mean": model.deviation(rows, columns, noise=False),
        "interval low": low,
        "interval high": high,
        "noise_variance_": model.noise_variance_,
    }


def mixture(model: Any, inputs: Arrays) -> dict[str, Any]:
    x = _rows(model, inputs["x"])
    draws, labels = model.sample(6)
    out = _kept(model, "weights_", "n_components_", "converged_", "n_iter_", "lower_bound_")
    return out | {
        # lower_bounds_ then had one entry more
        "lower_bounds_": np.asarray(model.fit_.trace.values),
        "predict": model.predict(x),
        "predict_proba": model.predict_proba(x),
        "score_samples": model.score_samples(x),
        "bic": model.bic(x),
        "aic": model.aic(x),
        "outlier_score": model.outlier_score(x),
        "sample": draws,
        "sample labels": labels,
    }


def family_mixture(model: Any, inputs: Arrays) -> dict[str, Any]:
    return mixture(model, inputs) | {
        f"parameters {name}": a for name, a in sorted(model.parameters_.items())
    }


def gaussian_mixture(model: Any, inputs: Arrays) -> dict[str, Any]:
    values, variances = model.impute(_rows(model, inputs["gaps"]), return_variance=True)
    out = (
        mixture(model, inputs)
        | _kept(model, "means_")
        | {"impute": values, "impute variance": variances}
    )
    out["outlier quantile"] = model.outlier_score(_rows(model, inputs["x"]), quantile=True)
    if model.covariance_type == "factor":
        return out | _kept(model, "loadings_", "noise_variances_")
    return out | _kept(model, "covariances_", "precisions_")


def topics(model: Any, inputs: Arrays) -> dict[str, Any]:
    x = _rows(model, inputs["x"])
    out = _kept(model, "components_", "sizes_", "n_iter_")
    if hasattr(model, "doc_topic_prior_"):
        out |= _kept(model, "doc_topic_prior_", "topic_word_prior_")
    return out | {
        "topic_word_": model.topic_word_,
        "transform": model.transform(x),
        "score": model.score(x),
        "top words": model.top_words(3),
        "top words by lift": model.top_words(3, by="lift"),
    }


def parts(model: Any, inputs: Arrays) -> dict[str, Any]:
    form = model.normal_form()
    out = _kept(model, "components_", "n_components_", "n_iter_", "reconstruction_err_")
    return out | {
        "transform": model.transform(_rows(model, inputs["x"])),
        "inverse_transform": model.inverse_transform(inputs["codes"]),
        "normal form shares": form[0],
        "normal form parts": form[1],
    }


def words(model: Any, inputs: Arrays) -> dict[str, Any]:
    """``texts`` are texts, or rows of item numbers; ``asked`` are positions of words."""
    v = model.vectors_
    asked = v.words[inputs["asked"]]
    near, three = (
        v.neighbours(asked, 3),
        [w.item() if isinstance(w, np.generic) else w for w in asked[:3]],
    )
    answer = v.analogy(*three, n=2)
    texts = inputs["texts"].tolist()
    out = {
        "components_": model.components_,
        "words": v.words,
        "neighbours": near.words,
        "neighbours positions": near.positions,
        "neighbours scores": near.scores,
        "analogy": [word for word, _ in answer],
        "analogy scores": [score for _, score in answer],
        "similarity": v.similarity(asked[:2], asked[1:3]),
        "odd_one_out": str(v.odd_one_out(asked)),
        "transform": model.transform(texts),
    }
    if v.counts is not None:
        out["counts"] = v.counts
    if type(model).__name__ == "PMI":
        out["singular_values_"] = model.singular_values_
    return out


def item_model(model: Any, inputs: Arrays) -> dict[str, Any]:
    """Lists and scores of known rows and of new ones; the weights themselves by rows with a single
    entry."""
    rows, columns = model.row_ids.names(inputs["rows"]), model.column_ids.names(inputs["columns"])
    new = eckart.observed(inputs["new"])
    return {
        "predict": model.predict(rows, columns),
        "fold_in": model.fold_in(new),
        "transform": model.transform(new),
        "recommend": model.recommend(rows, 3).positions,
        "recommend new rows": model.recommend(X=new, n=3).positions,
        "recommend new rows scores": model.recommend(X=new, n=3).scores,
        "similar columns": model.similar(columns=columns, n=1).positions,
        "explain": model.explain(rows[0], columns[0]).prediction,
        "single": model.fold_in(
            eckart.observed(np.where(np.eye(model.column_ids.size) > 0, 1.0, np.nan))
        ),
    }


def series(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    rows, columns = model.row_ids.names(inputs["rows"]), model.column_ids.names(inputs["columns"])
    mean, std = model.predict(rows, columns, return_std=True)
    low, high = model.interval(rows, columns)
    future = model.forecast(4)
    return {
        "predict": mean,
        "deviation": std,
        "low": low,
        "high": high,
        "impute": model.impute(),
        "forecast": future.mean,
        "forecast deviation": future.std,
        "forecast columns": future.columns,
        "period": np.array([model.period_]),
    }


def mixed_rows(inputs: Arrays) -> pd.DataFrame:
    """Three numbers, a text, a grade and a yes or no; empty texts are gaps."""
    texts = [[None if v == "" else v for v in column] for column in inputs["texts"].T]
    frame = pd.DataFrame(inputs["x"], columns=["a", "b", "count"])
    grade = pd.Categorical(texts[1], ["low", "middle", "high"], ordered=True)
    yes = pd.array([None if v is None else v == "yes" for v in texts[2]], dtype="boolean")
    return frame.assign(town=pd.Series(texts[0], dtype=object), grade=grade, yes=yes)


def mixed(model: Any, inputs: Arrays) -> dict[str, Any]:
    frame = mixed_rows(inputs)
    filled, why = model.impute(frame), model.explain(frame, "a", row=0)
    return {
        "components_": model.components_,
        "transform": model.transform(frame),
        "impute numbers": filled[["a", "b", "count"]].to_numpy(),
        "impute levels": filled[["town", "grade", "yes"]].to_numpy(object),
        "probabilities": np.hstack([model.predict_proba(frame, name) for name in model.levels_]),
        "levels": [str(level) for levels in model.levels_.values() for level in levels],
        "losses": list(model.losses_.values()),
        "explain": [why.value, why.natural, why.base, *(share for _, share in why.shares)],
        "explain columns": [name for name, _ in why.shares],
    }


QUESTIONS = {
    "PCA": pca,
    "IncrementalPCA": pca,
    "TruncatedSVD": truncated,
    "LatentDirichletAllocation": topics,
    "RobustPCA": robust,
    "LinearAutoencoder": linear_autoencoder,
    "Autoencoder": coder,
    "ConvAutoencoder": conv_coder,
    "NetworkClassifier": classifier,
    "NetworkRegressor": regressor,
    "ALS": completer,
    "BayesianMF": bayesian,
    "SVP": completer,
    "SVT": completer,
    "SoftImpute": completer,
    "ExactRecovery": completer,
    "EASE": item_model,
    "SLIM": item_model,
    "SpectralFilter": item_model,
    "Blend": item_model,
    "TimeFactors": series,
    "MixedTable": mixed,
    "GaussianMixture": gaussian_mixture,
    "Mixture": family_mixture,
    "PLSA": topics,
    "LDA": topics,
    "NMF": parts,
    "MiniBatchNMF": parts,
    "GloVe": words,
    "SkipGram": words,
    "PMI": words,
}
NEED_TORCH = ("Autoencoder", "ConvAutoencoder", "NetworkClassifier", "NetworkRegressor")
