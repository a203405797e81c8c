"""Autoencoder with dense layers: n -> hidden -> k -> hidden reversed -> n."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from eckart.nn.architecture import default_hidden, dense_coder
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
