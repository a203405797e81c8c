"""Autoencoder with dense layers: n -> hidden -> k -> hidden reversed -> n.

Autoencoder of images: convolutions of stride 2 down to a small map, dense layers to the code,
and the mirror image back.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eckart.fit import fitted
from eckart.nn.architecture import (
    conv_coder,
    default_hidden,
    dense_coder,
    first_convolution,
    image_shape,
)
from eckart.nn.options import widths
from eckart.parameters import flag, param
from eckart.reduce.network_coder import NetworkCoder


@dataclass(eq=False, repr=False)
class Autoencoder(NetworkCoder):
    """A nonlinear encoder F: R^n -> R^k and decoder G: R^k -> R^n with dense layers phi(W x + b),
    trained on 1/2 E||x - G(F(x))||^2.

    Entries that are NaN (or absent in ``Observed`` data) are masked out of the loss and filled by
    ``impute`` and ``complete``. With ``hidden=[]`` both maps are linear and the optimum is the PCA
    subspace.

    Parameters
    ----------
    n_components : int
        Code size k.
    hidden : None or list of int
        Widths of the encoder's hidden layers; the decoder mirrors them. None: two layers by the
        shape of the data.
    {units}
    tied : bool
        The decoder uses the transposed weights of the encoder.
    {coding}
    {training}

    Attributes
    ----------
    fit_, certificate_
        Network, certificate (stationary: gradient norm, held-out risk, PCA's risk at equal k beside
        it), trace, plan.
    loss_curve_, held_out_curve_, n_iter_, n_components_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.random.default_rng(0).uniform(0, 6.28, 400)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)])
    >>> model = Autoencoder(2, hidden=[32], max_iter=120, random_state=0).fit(X)
    >>> model.transform(X).shape, model.certificate_["risk / PCA"] < 0.2
    ((400, 2), True)

    References
    ----------
    G. Hinton and R. Salakhutdinov, "Reducing the dimensionality of data with neural networks",
    Science 313 (2006). S. Sedhain, A. Menon, S. Sanner and L. Xie, "AutoRec: autoencoders meet
    collaborative filtering", WWW (2015).
    """

    _: KW_ONLY
    tied: bool = param(False, flag())

    def _architecture(self, n: int, rows: int) -> dict[str, Any]:
        k = int(self.n_components)
        hidden = (
            default_hidden(n, k, rows) if self.hidden is None else [int(w) for w in self.hidden]
        )
        more: dict[str, Any] = {
            "dropout": float(self.dropout),
            "tied": bool(self.tied),
            "variational": self.variational > 0,
        }
        return dense_coder(
            n, k, hidden, self.activation, shortcut=self.init == "pca" and bool(hidden), **more
        )


@dataclass(eq=False, repr=False)
class ConvAutoencoder(NetworkCoder):
    """Encoder and decoder of images with convolutions (f * h)(u) = sum_v f(u + v) h(v), trained on
    1/2 E||x - G(F(x))||^2.

    Each row of X is an image, flattened. Every convolution has 3 x 3 filters and halves height and
    width; dense layers lead to the k numbers of the code; the decoder mirrors all of it.

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
    {units}
    {coding}
    {training}

    Attributes
    ----------
    fit_, certificate_
        Network, certificate (stationary: gradient norm, held-out risk, PCA's risk at equal k beside
        it), trace, plan.
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
    J. Masci, U. Meier, D. Ciresan and J. Schmidhuber, "Stacked convolutional auto-encoders for
    hierarchical feature extraction", ICANN (2011).
    """

    _: KW_ONLY
    image: Any = param(None)
    channels: Any = param((32, 64), widths("a list of at least one number of filters", 1))

    def _architecture(self, n: int, rows: int) -> dict[str, Any]:
        hidden = [256] if self.hidden is None else [int(w) for w in self.hidden]
        channels = [int(c) for c in self.channels]
        more: dict[str, Any] = {
            "dropout": float(self.dropout),
            "variational": self.variational > 0,
            "shortcut": self.init == "pca",
        }
        return conv_coder(
            image_shape(self.image, n),
            int(self.n_components),
            channels,
            hidden,
            self.activation,
            **more,
        )

    @fitted
    def filters_(self) -> np.ndarray:
        """Filters of the first convolution: out x in x 3 x 3."""
        f = self._fitted("filters_").factors
        found = first_convolution(f.architecture)
        assert found is not None
        return f.weights[f"{found[0]}.{found[1]}.weight"]
