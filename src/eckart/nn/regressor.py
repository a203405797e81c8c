"""Regressor with a network inside, trained on the squared error of centred and scaled targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.bases import RegressorMixin
from eckart.nn.head import NetworkHead, numbers_of


class NetworkRegressor(RegressorMixin, NetworkHead):
    """y_hat = net(x), dense (an MLP) or convolutional (with ``image``), trained on 1/2 E||y -
    y_hat||^2; one target or several.

    Parameters
    ----------
    {layers}
    {units}
    {training}

    Attributes
    ----------
    fit_, certificate_
        Network, certificate (stationary: gradient norm, held-out error beside that of a constant
        answer), trace, plan.
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
