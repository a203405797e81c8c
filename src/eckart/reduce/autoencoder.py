"""Autoencoder with dense layers: n -> hidden -> k -> hidden reversed -> n."""

from __future__ import annotations

from typing import Any

from eckart.errors import wrong
from eckart.nn.architecture import default_hidden, dense_coder
from eckart.reduce.network_coder import NetworkCoder


class Autoencoder(NetworkCoder):
    """A nonlinear encoder F: R^n -> R^k and decoder G: R^k -> R^n with dense layers phi(W x + b), trained on 1/2 E||x - G(F(x))||^2.

    Entries that are NaN (or absent in ``Observed`` data) are masked out of the loss and filled by ``impute`` and ``complete``. With ``hidden=[]``
    both maps are linear and the optimum is the PCA subspace.

    Parameters
    ----------
    n_components : int
        Code size k.
    hidden : None or list of int
        Widths of the encoder's hidden layers; the decoder mirrors them. None: two layers by the shape of the data.
    activation : "relu", "gelu", "tanh", "sigmoid", "identity"
    tied : bool
        The decoder uses the transposed weights of the encoder.
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
    loss_curve_, held_out_curve_, n_iter_, n_components_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.random.default_rng(0).uniform(0, 6.28, 400)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)])
    >>> model = Autoencoder(2, hidden=[32], max_iter=60, random_state=0).fit(X)
    >>> model.transform(X).shape, model.certificate_["risk / PCA"] < 0.2
    ((400, 2), True)

    References
    ----------
    G. Hinton and R. Salakhutdinov, "Reducing the dimensionality of data with neural networks", Science 313 (2006).
    S. Sedhain, A. Menon, S. Sanner and L. Xie, "AutoRec: autoencoders meet collaborative filtering", WWW (2015).
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        hidden: Any = None,
        activation: str = "relu",
        tied: bool = False,
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
        self.hidden = hidden
        self.activation = activation
        self.tied = tied
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
        k = int(self.n_components)
        hidden = default_hidden(n, k, rows) if self.hidden is None else [int(w) for w in self.hidden]
        more: dict[str, Any] = {
            "dropout": float(self.dropout),
            "tied": bool(self.tied),
            "variational": self.variational > 0,
        }
        return dense_coder(n, k, hidden, self.activation, shortcut=self.init == "pca" and bool(hidden), **more)

    def _check(self) -> None:
        super()._check()
        if not isinstance(self.tied, bool):
            raise wrong("tied", self.tied, "True or False")
