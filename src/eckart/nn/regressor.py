"""Regressor with a network inside, trained on the squared error of centred and scaled targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from eckart.nn.head import NetworkHead, numbers_of


class NetworkRegressor(RegressorMixin, NetworkHead):
    """y_hat = net(x), dense (an MLP) or convolutional (with ``image``), trained on 1/2 E||y - y_hat||^2; one target or several.

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
    fit_, certificate_
        Network, certificate (stationary: gradient norm, held-out error beside that of a constant answer), trace, plan.
    loss_curve_, held_out_curve_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-3, 3, 400)[:, None]
    >>> model = NetworkRegressor(hidden=[64, 64], max_iter=60, learning_rate=0.01, n_threads=1, random_state=0).fit(x, np.sin(2 * x[:, 0]))
    >>> model.score(x, np.sin(2 * x[:, 0])) > 0.95
    True
    """

    _problem = "squared error of targets"

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

    def predict(self, X: Any) -> np.ndarray:
        """The target of each row."""
        out = self._outputs(X)
        f = self.fit_.factors
        out = out * f.extras["scale"].astype(out.dtype) + f.extras["offset"].astype(out.dtype)
        return out[:, 0] if f.extras["flat"][0] else out

    def _targets(self, y: Any, rows: int) -> tuple[np.ndarray, dict[str, Any]]:
        values = numbers_of(y, rows)
        table = values.reshape(rows, -1)
        offset, scale = table.mean(axis=0), table.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        extras = {"offset": offset, "scale": scale, "flat": np.array([float(values.ndim == 1)])}
        return (table - offset) / scale, {"classes": None, "extras": extras, "out": table.shape[1]}

    def _trivial(self, y: np.ndarray, judged: np.ndarray, out: int) -> tuple[float, str]:
        return float(0.5 * ((judged - y.mean(axis=0)) ** 2).mean()), "the mean"

    def _measured(self, out: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, Any]]:
        return float(0.5 * ((out - y) ** 2).mean()), {}

    def _loss(self) -> Any:
        from eckart.nn.losses import target_loss

        return target_loss
