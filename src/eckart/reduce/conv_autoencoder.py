"""Autoencoder of images: convolutions of stride 2 down to a small map, dense layers to the code, and the mirror image back."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import wrong
from eckart.nn.architecture import conv_coder, first_convolution, image_shape
from eckart.nn.options import check_widths
from eckart.reduce.network_coder import NetworkCoder


class ConvAutoencoder(NetworkCoder):
    """Encoder and decoder of images with convolutions (f * h)(u) = sum_v f(u + v) h(v), trained on 1/2 E||x - G(F(x))||^2.

    Each row of X is an image, flattened. Every convolution has 3 x 3 filters and halves height and width; dense layers lead to the k numbers of
    the code; the decoder mirrors all of it.

    Parameters
    ----------
    n_components : int
        Code size k.
    image : None, (height, width) or (height, width, channels)
        None: a square, or else one row of pixels.
    channels : list of int
        Filters of each convolution.
    hidden : None or list of int
        Widths of the dense layers between the last map and the code; None: one of 256.
    activation : "relu", "gelu", "tanh", "sigmoid", "identity"
    loss : "squared" or "bernoulli"
        Squared error, or cross-entropy for data from 0 to 1.
    noise, corruption : float, "gaussian" or "mask"
        Denoising: the encoder sees x + noise e (e standard normal, in units of the data's spread), or x with this share of entries hidden.
    dropout : float
        Share of hidden units set to 0 in each step.
    variational : float
        Weight of KL(code || N(0, I)); 0 gives plain codes. Above 0 ``sample`` draws new rows.
    init : "random" or "pca"
        "pca" adds a linear map beside encoder and decoder that starts at the principal subspace: training starts at PCA's error.
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
        Network, certificate (stationary: gradient norm, held-out risk, PCA's risk at equal k beside it), trace, plan.
    filters_
        Filters of the first convolution.
    loss_curve_, held_out_curve_, n_iter_, n_components_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data[:300]
    >>> model = ConvAutoencoder(4, channels=(8,), hidden=[32], max_iter=4, random_state=0).fit(X)
    >>> model.transform(X).shape, model.filters_.shape
    ((300, 4), (8, 1, 3, 3))

    References
    ----------
    J. Masci, U. Meier, D. Ciresan and J. Schmidhuber, "Stacked convolutional auto-encoders for hierarchical feature extraction", ICANN (2011).
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        image: Any = None,
        channels: Any = (32, 64),
        hidden: Any = None,
        activation: str = "relu",
        loss: str = "squared",
        noise: float = 0.0,
        corruption: str = "gaussian",
        dropout: float = 0.0,
        variational: float = 0.0,
        init: str = "random",
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
        self.n_components = n_components
        self.image = image
        self.channels = channels
        self.hidden = hidden
        self.activation = activation
        self.loss = loss
        self.noise = noise
        self.corruption = corruption
        self.dropout = dropout
        self.variational = variational
        self.init = init
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

    def _architecture(self, n: int, rows: int) -> dict[str, Any]:
        hidden = [256] if self.hidden is None else [int(w) for w in self.hidden]
        channels = [int(c) for c in self.channels]
        more: dict[str, Any] = {
            "dropout": float(self.dropout),
            "variational": self.variational > 0,
            "shortcut": self.init == "pca",
        }
        return conv_coder(image_shape(self.image, n), int(self.n_components), channels, hidden, self.activation, **more)

    def _check(self) -> None:
        super()._check()
        check_widths("channels", self.channels)
        if self.channels is None or len(self.channels) == 0:
            raise wrong("channels", self.channels, "a list of at least one number of filters")

    @property
    def filters_(self) -> np.ndarray:
        """Filters of the first convolution: out x in x 3 x 3."""
        f = self._fitted("filters_").factors
        found = first_convolution(f.architecture)
        assert found is not None
        return f.weights[f"{found[0]}.{found[1]}.weight"]
