"""Classifier with a network inside: softmax over the classes, trained on the cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from eckart.errors import InputError
from eckart.nn.head import NetworkHead, labels_of


class NetworkClassifier(ClassifierMixin, NetworkHead):
    """p(class | x) = softmax(net(x)), dense (an MLP) or convolutional (with ``image``), trained on the mean of -log p(y_i | x_i).

    Parameters
    ----------
    hidden : None or list of int
        Widths of the hidden layers; None: two by the shape of the data (one of 128 after convolutions).
    image : None, (height, width) or (height, width, channels)
        Rows are images: convolution, activation and max-pooling for each entry of ``channels``, then flattening and dense layers.
    channels : list of int
        Filters of each convolution; they have 3 x 3 entries.
    activation : "relu", "gelu", "tanh", "sigmoid", "identity"
    dropout : float
        Share of hidden units set to 0 in each step.
    optimizer : "gd", "heavy_ball", "nesterov", "adagrad", "adam"
    learning_rate : "auto" or float
        Step for a loss of about 1 an entry; "auto" is 0.001 for Adam.
    schedule : "cosine", "linear" or "constant"
        How the step falls over ``max_iter`` epochs.
    max_iter : None or int
        Most epochs; None: as many as make 8000 steps, from 30 to 300.
    batch_size : "auto" or int
    validation_fraction, patience, tol : float, int, float
        Share of rows held out; stop when their loss has not fallen by ``tol`` (relative) for ``patience`` epochs. The best weights are kept.
    clip : None or float
        Largest norm of a gradient.
    weight_decay : float
        Weight of the penalty weight_decay / 2 ||W||^2, in units of the scaled loss.
    device : None, "cpu", "cuda"
        None: the CPU, unless X is a tensor on a GPU.
    precision, compile : "auto" or names
        "float32", "float64", "bfloat16" (products, on a GPU); "auto" is float32 on a CPU; on a GPU bfloat16 products, long runs compiled.
    checkpoint : None or path
        Keep the state here every two minutes; the same call after a crash goes on from there, with the same bits on a CPU.
    random_state, n_threads, verbose
        Seed; most threads of the CPU (the last bits depend on it); progress bars.

    Attributes
    ----------
    classes_
    fit_, certificate_
        Network, certificate (stationary: gradient norm, held-out error beside that of a constant answer), trace, plan.
    loss_curve_, held_out_curve_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NetworkClassifier(hidden=[64], max_iter=15, n_threads=1, random_state=0).fit(X[:1200], y[:1200])
    >>> model.score(X[1200:], y[1200:]) > 0.85
    True

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document recognition", Proc. IEEE 86 (1998).
    """

    _problem = "cross-entropy of classes"

    def __init__(
        self,
        *,
        hidden: Any = None,
        image: Any = None,
        channels: Any = (32, 64),
        activation: str = "relu",
        dropout: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: str = "adam",
        learning_rate: Any = "auto",
        schedule: str = "cosine",
        max_iter: int | None = None,
        batch_size: Any = "auto",
        validation_fraction: float = 0.1,
        patience: int = 10,
        tol: float = 1e-4,
        clip: float | None = None,
        device: Any = None,
        precision: str = "auto",
        compile: Any = "auto",
        checkpoint: Any = None,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.hidden = hidden
        self.image = image
        self.channels = channels
        self.activation = activation
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.clip = clip
        self.device = device
        self.precision = precision
        self.compile = compile
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def classes_(self) -> np.ndarray:
        """Labels, sorted."""
        return self._fitted("classes_").factors.classes

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, in the order of ``classes_``."""
        out = self._outputs(X).astype(np.float64)
        e = np.exp(out - out.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        out = self._outputs(X)
        return self.classes_[np.argmax(out, axis=1)]

    def _targets(self, y: Any, rows: int) -> tuple[np.ndarray, dict[str, Any]]:
        labels = labels_of(y, rows)
        _check_kind(labels)
        try:
            check_classification_targets(labels)
            classes, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            raise InputError(
                "y holds labels of several types, wanted labels that can be compared with each other"
            ) from None
        return codes.astype(np.int64), {"classes": classes, "extras": {}, "out": len(classes)}

    def _trivial(self, y: np.ndarray, judged: np.ndarray, out: int) -> tuple[float, str]:
        share = np.bincount(y, minlength=out) / max(1, len(y))
        return float(-np.log(np.maximum(share[judged], 1e-12)).mean()), "the class shares"

    def _measured(self, out: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, Any]]:
        shifted = out - out.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        hit = float((np.argmax(out, axis=1) == y).mean())
        return float(-log_p[np.arange(len(y)), y].mean()), {"accuracy": hit}

    def _loss(self) -> Any:
        from eckart.nn.losses import class_loss

        return class_loss


def _check_kind(labels: np.ndarray) -> None:
    """Refuse labels that a model file cannot hold, such as bytes and dates."""
    raw = labels.dtype == object and any(isinstance(v, bytes) for v in labels)
    if raw or labels.dtype.kind not in "biufUO":
        kind = "bytes" if raw or labels.dtype.kind == "S" else f"labels of type {labels.dtype}"
        raise InputError(
            f"y holds {kind}, wanted text, numbers or booleans; convert them, for instance by y.astype(str)"
        )
