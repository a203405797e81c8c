"""Sections of docstrings that many verbs share: what ``X`` or ``n`` stand for, and what a verb
answers, is written once and set into each docstring that does not say it itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

PARAMETERS = {
    "X": "Rows of data (or triples, texts, entries by id, where the model takes them); see "
    "``eckart.read`` for what counts as data.",
    "y": "Answers of a classifier, a regressor or a network; the other models ignore it, it "
    "is there for pipelines.",
    "sample_weight": "A weight >= 0 for each row; 2 counts as the row twice. None weighs all alike.",
    "weights": "Weights >= 0 of entries, in the shape of the data or as a column; 0 leaves an "
    "entry out.",
    "rows": "Ids of rows: one, or several. In a table of triples, the name or position of the "
    "column that holds them.",
    "columns": "Ids of columns: one, or several. In a table of triples, the name or position of "
    "the column that holds them.",
    "values": "In a table of triples, the name or position of the column of values; without it "
    "each is 1.",
    "row": "The id of a row.",
    "column": "The id, or the name, of a column.",
    "n": "How many.",
    "positive": "A word or words that answers should be near to.",
    "negative": "A word or words that answers should be far from.",
    "topn": "How many.",
    "N": "Another name of ``n``, as implicit has it.",
    "path": "The name of a file.",
    "unknown": 'What an id that is not in the model gets: "raise" (an error), "mean" or "nan".',
    "axis": '"rows" or "columns": of which the entries are.',
    "random_state": "None, a seed, or a generator of NumPy.",
    "row_features": "Attributes of rows: a frame, or a pair of a frame and the name of its column of "
    "ids.",
    "column_features": "Attributes of columns: a frame, or a pair of a frame and the name of its column of "
    "ids.",
    "time": "When each entry was observed: the name of a column, or one time for each entry.",
    "keep": "Whether observed entries stay as they are; False gives the model's value everywhere.",
    "block_bytes": "Bytes of a block of the answer: memory stays small however large the table is.",
    "sql": "A query whose answer is the data; X is then the connection or the file.",
    "memory": 'What a file of triples may take of memory, such as "4GB"; a larger one is sorted '
    "on disk.",
    "duplicates": 'What becomes of several values of one cell: "error", "last", "mean" or "sum".',
    "missing": "What else stands for a missing entry: numbers, or words in the cells of a file.",
    "input_features": "None, or the names of the columns of the fit.",
    "by": 'What best means: "auto", "chance" or "prediction".',
    "min_support": "Leave out columns with fewer observations than this.",
    "exclude_seen": "Whether columns that the row has observed are left out.",
    "filter_already_liked_items": "Another name of ``exclude_seen``, as implicit has it.",
    "candidates": "Ids of the columns that may be answered; None for all.",
    "exclude": "Ids of columns that may not be answered.",
    "level": "The share, above 0 and below 1, that lies inside an interval or under a limit.",
    "labels": "One label for each row.",
    "label": "The name of a row or a column.",
    "n_samples": "How many rows are drawn.",
    "n_threads": "Most threads to use; results do not depend on it.",
    "n_components": "How many components.",
    "engine": 'What computes: "auto", "cpu", "cuda", "numpy" or one of another package.',
    "verbose": "Whether progress is shown.",
    "checkpoint": "A file that keeps the state of a long run; the same call goes on from it.",
    "held_out": "Share of the entries, or of the documents, on which errors are measured.",
    "max_iter": "Most iterations.",
    "tol": "The tolerance at which the work stops.",
    "W": "The left factor that a custom start begins with, one row for each row of X.",
    "H": "The right factor that a custom start begins with, one row for each part.",
    "a": "A word or item, an array, or a subspace, as the first line says.",
    "b": "A word or item, an array, or a subspace, as the first line says.",
    "c": "The word or item that the answer is to as b is to a.",
    "x": "The data, or points of the space, one in each row.",
    "words": "Words or items that have a vector.",
    "among": "The words or items that may be answered; None for all.",
    "groups": "A label for each row or column: what has one label stays together.",
    "return_std": "Whether the standard deviation of each answer is returned beside it.",
    "return_variance": "Whether the variance of each filled entry is returned beside it.",
    "sub_sampling": "Kept for compatibility; it is not used.",
    "steps": "How many times ahead.",
    "quantile": "The quantile, above 0 and below 1, of the predictive distribution.",
    "without": "Ids of rows or columns that are left out.",
    "other": "The subspace or the model that is compared.",
    "seed_words": "Words that guide topics, a list for each of the first topics.",
    "factors": "The factors that a model file holds.",
    "certificate": "The certificate that a model file holds.",
    "trace": "The trace that a model file holds.",
    "plan": "The plan that a model file holds.",
    "arrays": "Arrays beside the factors, by name.",
    "basis": "Orthonormal rows that span the subspace.",
    "offset": "A point of the subspace; None for the origin.",
    "watch": "A function that is called between steps with what is done, how far, and of how much.",
    "l2_bias": "The ridge of biases; None takes it in proportion to ``l2``.",
    "l2_bias_power": "How the ridge of a bias grows with its number of entries.",
    "patience": "Steps without a gain after which the work stops.",
    "cg_steps": "Steps of conjugate gradients for each row.",
    "scale": "Whether rows or columns are divided by their spread first.",
    "more": "Attributes, as ``row_features=`` and ``column_features=`` of ``fit``.",
    "features": "Attributes, as ``row_features=`` and ``column_features=`` of ``fit``.",
    "noise": "Whether the noise of an observation is included.",
    "validation": "Entries on which the weights are chosen; None hides a share of X.",
    "reading": "How a file is read: arguments of ``eckart.read``.",
    "options": "How text is cut into words: arguments of ``eckart.sequences``.",
    "params": "Parameters of the model that is fitted.",
    "at": "Where the answer is asked for: positions, or candidates that are tried first.",
    "single_pass": "Whether the data are read once only.",
    "observed": "The observed entries, or what ``eckart.observed`` makes them of.",
    "n_splits": "The number of folds.",
    "solver": "The method that finds the factors.",
    "n_init": "The number of starts, of which the best is kept.",
    "shuffle": "Kept for compatibility; it is not used.",
    "ks": "The numbers of parts that are tried.",
    "method": "How the answer is combined: one of the names above.",
    "min_count": "Leave out words that were seen less often.",
    "first": "A word, or a list of words.",
    "second": "A word, or a list of words.",
    "format": "How the file is written; None goes by its ending.",
    "space": "The inner product or the cosine that the vectors are for.",
    "normalize": "Whether the shares of a document add up to 1.",
    "seed_weight": "How strongly ``seed_words`` guide their topics.",
    "share": "The share of the words of a document in the first half.",
    "topics": "The model, or the words of its topics.",
    "model": "The model that is fitted for each candidate.",
    "pattern": "Names of files with a * for what differs.",
    "folder": "The folder that the parts are written to.",
    "name": "How the files of the parts begin.",
    "blocks": "Documents in parts.",
    "mean": "The mean of all entries.",
    "left": "Factors of rows.",
    "right": "Factors of columns.",
    "row_bias": "Biases of rows.",
    "column_bias": "Biases of columns.",
    "row_scale": "Scales of rows.",
    "column_scale": "Scales of columns.",
    "size": "Rows in each block.",
    "indptr": "Where the entries of each row begin.",
    "indices": "The column of each entry.",
    "data": "The value of each entry.",
    "n_columns": "The number of columns.",
    "kind": "What the certificate proves.",
    "notes": "Sentences for people.",
    "checks": "What was measured, each with its limit.",
    "facts": "Figures beside the checks, by name.",
    "problem": "The problem in words.",
    "errors": "Errors beside the model's own, by name.",
    "where": "On which entries they were measured.",
    "learning_method": "How the model is fitted: one of the names above.",
    "learning_decay": "How fast old batches are forgotten.",
    "learning_offset": "How many batches the first ones count for.",
    "burn_in": "Sweeps before those that are averaged.",
    "batch_size": "Rows or documents of a batch.",
    "doc_topic_prior": "The prior of the shares of a document; None learns or sets it.",
    "topic_word_prior": "The prior of the words of a topic; None learns or sets it.",
    "n_jobs": "Kept for compatibility; ``n_threads`` says how many threads there are.",
    "perp_tol": "Kept for compatibility; it is not used.",
    "warm_start": "Kept for compatibility; it is not used.",
    "evaluate_every": "Kept for compatibility; it is not used.",
    "total_samples": "The number of documents in all, for ``partial_fit``.",
    "mean_change_tol": "The change of a document's shares at which its update stops.",
    "max_doc_update_iter": "Most updates of a document's shares.",
    "svd_solver": "As in ``PCA``.",
    "iterated_power": "As in ``PCA``.",
    "center": "As in ``PCA``.",
    "n_oversamples": "As in ``PCA``.",
    "power_iteration_normalizer": "As in ``PCA``.",
    "rotation": "As in ``PCA``.",
}
"""What a parameter stands for in every verb that has it and says nothing else of it."""

ANSWERS = {
    "fit": "The model itself, fitted.",
    "partial_fit": "The model itself, with these rows taken in.",
    "update": "A model with these rows or columns in it.",
    "certify": "The evidence, measured on these data.",
    "transform": "Codes or shares, one row for each row of X; of a completion, the rows filled in.",
    "fit_transform": "What ``transform`` answers for the rows of the fit.",
    "inverse_transform": "Rows of data from codes.",
    "impute": "The rows with every missing entry filled in.",
    "fit_impute": "The rows of the fit with every missing entry filled in.",
    "predict": "One value, or one label, for each cell or row asked for.",
    "predict_proba": "One chance, or one row of chances, for each cell or row asked for.",
    "fit_predict": "A label for each row.",
    "score": "One number; larger is better.",
    "score_samples": "The log-density of each row.",
    "reconstruction_error": "The mean squared error of rows rebuilt from their codes.",
    "reconstruct": "The rows as their codes say they are.",
    "sample": "Rows that were drawn, and where the model has groups their labels.",
    "recommend": "Lists of columns with their scores, one for each row.",
    "similar": "Lists of ids that are alike, with their cosines.",
    "explain": "What speaks for the value, and how much.",
    "fold_in": "Codes of new rows, or of new columns, with the others fixed.",
    "demand": "How likely rows are to take up columns.",
    "interval": "Lower and upper ends of predictive intervals.",
    "get_feature_names_out": "A name for each column of the answer.",
    "extra_state": "Arrays beside the factors, by name, for a model file.",
    "perplexity": "The perplexity of a word; smaller is better.",
    "top_words": "The words of each topic, the most probable first.",
    "bic": "The Bayesian information criterion; smaller is better.",
    "aic": "Akaike's information criterion; smaller is better.",
    "map": "Positions in the plane.",
    "get": "The value, or the default.",
    "split": "The parts: which entries or rows are for training, and which for testing.",
    "get_n_splits": "The number of folds.",
    "row_of": "The position of the row with this id.",
    "rows_of": "Positions of the rows with these ids.",
    "contributions": "A number for each entry of X.",
    "get_covariance": "The covariance that the model gives columns.",
    "get_precision": "The inverse of ``get_covariance``.",
    "hotelling_t2": "A number for each row.",
    "spe": "A number for each row.",
    "loadings": "A number for each column and component.",
    "outliers": "Both distances of each row, with their limits.",
    "top_features": "For each component its columns of largest weight, with the weights.",
    "angles": "Angles in radians, the smallest first.",
    "codes": "Coordinates in the subspace, one row for each point.",
    "complement": "The projection onto what is orthogonal to the subspace.",
    "distance": "A number for each point.",
    "matrix": "The projection as a matrix.",
    "principal_angles": "Angles in radians, the smallest first.",
    "subspace_distance": "One number, 0 for the same subspace.",
    "power_method": "Pairs of eigenvalues and eigenvectors, the largest first.",
    "select_components": "What each criterion chooses, with the numbers behind it.",
    "ridge_for": "The ridge of each row or column.",
    "deviation": "The standard deviation of each prediction.",
    "forecast": "What is expected of the next times, with intervals.",
    "at_the_ends": "Of each column of numbers how many fills are the least or largest value.",
    "simple_errors": "A dict of each column: errors of the mean, of near rows and of linear regression.",
    "expect": "The expected value of each missing cell.",
    "uncertainty": "How unsure each fill is.",
    "recovery": "How many entries are needed and how many there are, with a verdict.",
    "recovery_certificate": "A certificate that the matrix was recovered, or why that is not known.",
    "tune": "All candidates with their errors, the best of them, and its model.",
    "compare": "One line for each model and list, with errors of the difference.",
    "randomized_svd": "U, the singular values, and V transposed.",
    "normalise": "The data without what was taken out, and how to put it back.",
    "folds": "Pairs of training and test data, one for each fold.",
    "outlier_score": "A number for each row; large ones are unusual.",
    "select_mixture": "The criteria of each candidate, what each criterion chooses, and the best model.",
    "normal_form": "The same model with parts of unit size, sorted.",
    "select_rank": "How well fits of each rank agree.",
    "analogy": "Words with their scores, the best first.",
    "mean": "The mean vector of words, or of each text.",
    "most_similar": "Words with their cosines, the nearest first.",
    "neighbours": "Words with their cosines, the nearest first.",
    "odd_one_out": "The word that is least like the others.",
    "similarity": "The cosine of two words, or of each pair.",
    "read_vectors": "The words with their vectors.",
    "document_completion": "The perplexity of hidden words, and what it was measured on.",
    "split_tokens": "Two halves of each document.",
    "coherence": "A number for each topic; larger is better.",
    "topic_diversity": "The share of different words among the first of all topics.",
    "align_topics": "For each topic of one model the nearest of the other.",
    "select_topics": "A line for each number of topics, the best first.",
    "shards": "The documents of the folder, to be read in parts.",
    "write_shards": "The documents that were written, to be read in parts.",
    "at": "Values of the model at these cells.",
    "block": "Values of the model for these rows and all columns.",
    "to_state": "Arrays and plain values that a model file holds.",
    "with_rows": "The factors with more rows.",
    "view": "The studio of one model in a notebook.",
    "export_vectors": "The number of vectors that were written.",
    "load": "The model, fitted.",
    "to_scipy": "The stored entries as a sparse matrix of SciPy.",
    "transposed": "The matrix with rows and columns exchanged.",
    "to_dict": "Plain values, as JSON holds them.",
    "with_errors": "The certificate with these facts beside its own.",
    "corpus": "The counts, with the words as columns.",
    "column_of": "The position of the column with this id.",
    "columns_of": "Positions of the columns with these ids.",
    "row_counts": "The number of entries of each row.",
    "column_counts": "The number of entries of each column.",
}
"""What a verb answers; the type stands in its signature."""

ENTRY = re.compile(r"^(\*{0,2}[a-zA-Z_][\w*, .]*) : ([^\n]+)\n(?! )", re.MULTILINE)
"""A parameter with its description on the same line."""
SECTION = re.compile(r"^(?=[^\n]+\n-{3,}$)|^(?=>>>)", re.MULTILINE)
"""Where a section of a docstring, or its doctest, begins."""


def with_entries(text: str) -> str:
    """A docstring in which descriptions of parameters stand below their names, and its doctest
    below a heading, where readers of docstrings look for them.

    >>> print(with_entries("Add.\\n\\nParameters\\n----------\\na : the first\\nb : the second"))
    Add.
    <BLANKLINE>
    Parameters
    ----------
    a
        the first
    b
        the second
    """
    before, head, own = inspect.cleandoc(text).partition("Parameters\n----------\n")
    found = SECTION.search(own)
    cut = found.start() if found else len(own)
    entries, rest = ENTRY.sub(r"\1\n    \2\n", f"{own[:cut]}\n"), own[cut:]
    if "Examples\n---" not in text and (example := rest.find(">>>")) >= 0:
        rest = f"{rest[:example]}Examples\n--------\n{rest[example:]}"
    return f"{before}{head}{entries.rstrip()}\n\n{rest}".rstrip() if head else before


def documented(verb: Callable[..., Any], signature: inspect.Signature) -> str | None:
    """The docstring of a verb with sections for parameters and for what it returns, as far as it
    has none of its own.

    >>> def fit(self, X: Any) -> "Model":
    ...     "Fit to rows."
    >>> print(documented(fit, inspect.signature(fit)))
    Fit to rows.
    <BLANKLINE>
    Parameters
    ----------
    X
        Rows of data (or triples, texts, entries by id, where the model takes them); see ``eckart.read`` for what counts as data.
    <BLANKLINE>
    Returns
    -------
    Model
        The model itself, fitted.
    """
    if verb.__doc__ is None:  # python -OO leaves none
        return None
    doc = inspect.cleandoc(verb.__doc__)
    own = doc.partition("Parameters\n----------\n")[2]
    described = {
        name.lstrip("*")
        for line in re.findall(r"^(\S[^\n:]*?) *(?::[^\n]*)?$", own, re.MULTILINE)
        for name in line.split(", ")
    }
    names = [name for name in signature.parameters if name in PARAMETERS and name not in described]
    stars = {name: "**" for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD}
    entries = "".join(f"{stars.get(name, '')}{name}\n    {PARAMETERS[name]}\n" for name in names)
    answer = ANSWERS.get(verb.__name__)
    returns = (
        f"Returns\n-------\n{str(signature.return_annotation).strip(chr(39))}\n    {answer}\n"
        if answer and "Returns\n-------" not in doc
        else ""
    )
    if own and entries:
        doc, entries = (
            doc.replace("Parameters\n----------\n", f"Parameters\n----------\n{entries}", 1),
            "",
        )
    added = "\n".join(
        part for part in (f"Parameters\n----------\n{entries}" if entries else "", returns) if part
    )
    if not added:
        return with_entries(doc)
    # what is returned follows the parameters
    begin = doc.find("Parameters\n----------\n") + 1 if own else 0
    found = SECTION.search(doc, begin)
    at = found.start() if found else len(doc)
    return with_entries(f"{doc[:at].rstrip()}\n\n{added}\n{doc[at:]}")


def describe(value: Any) -> None:
    """Complete the docstring of a public function, or of a class and its verbs."""
    if inspect.isfunction(value):
        value.__doc__ = documented(value, inspect.signature(value))
    elif inspect.isclass(value) and value.__doc__ is not None:
        if not issubclass(value, Exception):
            value.__doc__ = documented(value, inspect.signature(value))
        for owner in value.__mro__:
            for name, verb in vars(owner).items() if owner.__module__.startswith("eckart.") else ():
                # there only for some models; of the class
                verb = getattr(verb, "fn", getattr(verb, "__func__", verb))
                if inspect.isfunction(verb) and not name.startswith("_"):
                    verb.__doc__ = documented(verb, inspect.signature(verb))
