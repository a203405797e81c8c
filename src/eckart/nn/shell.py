"""What estimators with a network inside share: reading the data, the split, the run, the
network in use, and what is left out of a pickle."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from eckart.errors import FileError
from eckart.factors import Network
from eckart.factors.checks import numbers
from eckart.fit import fitted, one_kind_of_names
from eckart.io.models.checkpoint import checksum
from eckart.io.read import read
from eckart.loading import lazy
from eckart.matrix import Dense, Matrix, squarable
from eckart.nn.architecture import weight_shapes
from eckart.nn.lazy import is_tensor, need_torch
from eckart.nn.options import NetworkParameters, asked_device, recipe_of
from eckart.trace import StopReason, Trace, progress

batches = lazy("eckart.nn.batches")
modules = lazy("eckart.nn.modules")
places = lazy("eckart.nn.place")
stepping = lazy("eckart.nn.steps")
training = lazy("eckart.nn.train")

BLOCK = 4096
"""Rows that go through a network together where none of them is learned from."""
LEAST_HELD_OUT = 5
"""Fewer rows than this judge nothing: such a fit goes without."""


def rows_at(matrix: Matrix, at: np.ndarray) -> Matrix:
    """A matrix of the rows at these positions."""
    labels = None if matrix.rows is None else matrix.rows[at]
    if isinstance(matrix, Dense):
        return Dense(np.asarray(matrix.values)[at], labels, matrix.columns)
    return type(matrix).from_scipy(matrix.to_scipy()[at], labels, matrix.columns)


def split_rows(rows: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, held-out rows), both in ascending order.

    >>> train, held_out = split_rows(100, 0.1, 0)
    >>> len(train), len(held_out)
    (90, 10)
    """
    count = int(share * rows)
    if count < LEAST_HELD_OUT:
        return np.arange(rows), np.arange(0)
    order = np.random.default_rng([seed, 1]).permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])


def drawn_seed(rng: np.random.Generator) -> int:
    """The seed of a run, on which everything hangs that the network and its training draw."""
    return int(rng.integers(2**31))


class NetworkShell(NetworkParameters, ABC):
    """Base of the estimators with a network inside."""

    # ---- data

    def _read_rows(self, X: Any) -> tuple[Matrix, bool]:
        """Data in memory, finite or NaN, and whether it came from a GPU."""
        need_torch(type(self).__name__)
        gpu = is_tensor(X) and X.is_cuda
        return squarable(batches.whole(one_kind_of_names(read(as_array(X))))), gpu

    def _new(self, X: Any) -> tuple[Matrix, bool]:
        """New rows in memory, with the columns of the training data."""
        check_is_fitted(self)
        need_torch(type(self).__name__)
        gpu = is_tensor(X) and X.is_cuda
        return batches.whole(self._new_rows(as_array(X))), gpu

    def _place(self, matrix: Matrix, gpu: bool) -> Any:
        count = (matrix.shape[0] or 0) if isinstance(matrix, Dense) else 0
        size = count * matrix.shape[1] * (9 if self.precision == "float64" else 5)
        device, asked = asked_device(self)
        place = places.choose_place(device, self.precision, self.compile, size, gpu, asked=asked)
        if isinstance(matrix, Dense):
            return place
        return replace(place, resident=False, reason="rows are filled in batch by batch")

    # ---- training

    def _run(
        self,
        net: Any,
        loss: Any,
        rows: Any,
        split: Any,
        place: Any,
        seed: int,
        memory: Any,
        judge: Any = None,
    ) -> tuple[Any, Any, Any]:
        """Train on one part of the rows, judge on the other; (recipe, progress, place)."""
        held = batches.RowsPart(rows, split[1]) if len(split[1]) else None
        count = len(split[0])
        recipe = recipe_of(self, count, place.cuda)
        steps = recipe.max_iter * -(-count // recipe.batch_size)
        place = place.settled(
            steps, sum(p.numel() for p in net.parameters()), recipe.max_iter * count
        )
        with progress(bool(self.verbose)) as watch, places.threads(self.n_threads):
            more = {"seed": seed, "watch": watch, "memory": memory, "judge": judge}
            run = training.train(
                net, loss, batches.RowsPart(rows, split[0]), held, recipe, place, **more
            )
        warn_of(run.trace)
        if recipe.schedule == "constant":  # other schedules end at max_iter, and so are done there
            self._say_if_early(run)
        return recipe, run, place

    def _choices(
        self,
        recipe: Any,
        run: Any,
        place: Any,
        split: Any,
        seed: int,
        network: Network,
        matrix: Matrix,
    ) -> dict[str, Any]:
        """The plan: every resolved choice."""
        plan = {
            "solver": recipe.optimizer,
            "reason": "asked for by name",
            "k": network.k,
            "layers": in_words(network.architecture),
            "weights": network.size,
            "engine": place.device.type,
            "engine_reason": self._why(place),
            "device": place.in_words(),
            "data": place.reason,
            "learning rate": f"{recipe.learning_rate:g}, {recipe.schedule}",
            "batch_size": recipe.batch_size,
            "epochs": f"{len(run.trace)} of at most {recipe.max_iter}",
            "rows": len(split[0]) + len(split[1]),
            "held-out rows": len(split[1]),
            "seed": seed,
        }
        plan["data checksum"] = fingerprint(matrix)
        if run.errors:
            plan["best epoch"] = int(np.argmin(run.errors)) + 1
        if run.room.parts > 1:
            plan["memory"] = (
                f"the device had no room for {recipe.batch_size} rows; each batch was "
                f"summed in {run.room.parts} parts, with the same gradient"
            )
        return plan

    def _why(self, place: Any) -> str:
        """Why this kind of device was taken."""
        if self.engine != "auto":
            return "asked for"
        if self.device is not None:
            return f"auto: device={self.device!r} was asked for"
        return (
            "auto: the rows lie on the GPU already"
            if place.cuda
            else "auto: the processors of this machine"
        )

    # ---- the network in use

    def _through(self, f: Network, matrix: Matrix, gpu: bool, use: Any) -> np.ndarray:
        """``use(network, batch)`` over blocks of rows, in the precision of the data, joined."""
        torch = need_torch(type(self).__name__)
        kind = "float64" if matrix.dtype == np.float64 else "float32"
        place = places.choose_place(asked_device(self)[0], kind, False, 0, gpu, in_use=True)
        net, scale = live(f, place.dtype, place.device), batches.ColumnScale(f.mean, f.spread, 1.0)
        count, out = int(matrix.shape[0] or 0), []
        with torch.no_grad(), places.threads(self.n_threads):
            for a in range(0, count, BLOCK):
                part = batches.NetworkRows(
                    rows_at(matrix, np.arange(a, min(a + BLOCK, count))), scale, place
                )
                out += stepping.over_rows(
                    part, lambda batch: use(net, batch).detach().cpu().numpy()
                )
        return np.concatenate(out).astype(matrix.dtype, copy=False)

    # ---- what is kept

    @fitted
    def n_iter_(self) -> int:
        """Epochs."""
        return max(1, len(self._fitted("n_iter_").trace))

    @fitted
    def loss_curve_(self) -> np.ndarray:
        """Mean training loss of each epoch."""
        return np.array(self._fitted("loss_curve_").trace.values)

    @fitted
    def held_out_curve_(self) -> np.ndarray:
        """Loss on the held-out rows after each epoch; empty where none were held out."""
        self._fitted("held_out_curve_")
        return self._errors

    def extra_state(self) -> dict[str, np.ndarray]:
        """Arrays beside the factors, by name, for a model file."""
        return {"held_out": self._errors}

    def restore(
        self,
        factors: Any,
        certificate: Any,
        trace: Trace,
        plan: dict[str, Any],
        arrays: dict[str, Any],
    ) -> None:
        """Take the fitted state of a model file, refused where weights, layers, columns and answers
        do not fit each other."""
        shapes, out = weight_shapes(factors.architecture)
        if {name: w.shape for name, w in factors.weights.items()} != shapes:
            raise FileError("the weights do not fit the layers")
        if (
            len({w.dtype for w in factors.weights.values()}) > 1
            or factors.architecture["in"] != factors.n
        ):
            raise FileError(
                "the weights have several precisions, or the layers do not begin with the columns"
            )
        self._fits(factors, out)
        if not all(
            isinstance(plan.get(name), int) for name in ("seed", "batch_size", "data checksum")
        ):
            raise FileError(
                "the plan lacks the seed, the size of a batch or the checksum of the data"
            )
        numbers("held_out", arrays["held_out"], (None,))
        super().restore(factors, certificate, trace, plan, arrays)

    @abstractmethod
    def _fits(self, f: Network, out: int) -> None:
        """Refuse factors of another kind of network."""

    def _store(self, fit: Any, arrays: dict[str, np.ndarray]) -> None:
        self.fit_ = fit
        self._errors = np.asarray(arrays["held_out"], float)

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_stream"}


_BUILT: WeakKeyDictionary[Network, tuple[str, Any]] = WeakKeyDictionary()


def live(f: Network, dtype: Any, device: Any) -> Any:
    """The network of the factors in this precision on this device; the last one made is kept as
    long as the factors are."""
    key = f"{dtype} {device}"
    if _BUILT.get(f, ("", None))[0] != key:
        _BUILT[f] = (key, modules.with_weights(f.architecture, f.weights).to(device, dtype))
    return _BUILT[f][1]


def as_array(x: Any) -> Any:
    """A tensor as an array, in float32 where NumPy lacks its kind; anything else as it is."""
    if not is_tensor(x):
        return x
    x = x.detach().cpu()
    return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()


def warn_of(trace: Trace) -> None:
    """Say that training went astray, if it did."""
    if trace.reason is StopReason.DIVERGED:
        warnings.warn(f"training stopped: {trace.note}", ConvergenceWarning, stacklevel=4)


def fingerprint(matrix: Matrix) -> int:
    """A checksum of the shape and of some 64 rows, which tells whether data are those of the
    training."""
    count = int(matrix.shape[0] or 0)
    some = rows_at(
        matrix, np.unique(np.linspace(0, max(count - 1, 0), 64).astype(np.int64)[: max(count, 0)])
    )
    return checksum(np.array([count, matrix.shape[1]]), *_arrays(some))


def _arrays(matrix: Matrix) -> tuple[Any, ...]:
    """What a matrix in memory consists of."""
    return (
        (matrix.values,)
        if isinstance(matrix, Dense)
        else (matrix.indptr, matrix.indices, matrix.data)
    )


def in_words(architecture: dict[str, Any]) -> str:
    """The sizes that a row passes through.

    >>> in_words({"kind": "head", "in": 4, "layers": [{"layer": "dense", "in": 4, "out": 3}]})
    '4-3'
    """
    chain = (
        architecture["layers"]
        if architecture["kind"] == "head"
        else architecture["encoder"] + architecture["decoder"]
    )
    sizes = [str(architecture["in"])]
    for layer in chain:
        if layer["layer"] == "dense":
            sizes.append(str(layer["out"]))
        elif layer["layer"] in ("convolution", "transposed"):
            sizes.append(f"{layer['out']} maps")
        elif layer["layer"] == "max_pool":
            sizes.append("pool")
    return "-".join(sizes) + (" + linear" if architecture.get("shortcut") else "")
