"""The one training loop: epochs of shuffled batches, judged after each epoch on rows that were held
out, the best weights kept.

An epoch visits all rows once in random order. After it the loss is measured on the held-out rows
(without dropout, noise or sampling); where there are none, the mean loss of the epoch stands in.
When this value has not fallen by ``tol`` (relative) for ``patience`` epochs, the rate falls from
where it is to zero in a few epochs more, from the best weights on: what a large step still throws
about settles then. The loop ends with that, after ``max_iter`` epochs, on an interrupt, or on a
loss that is not finite; in every case the best weights are returned, and without held-out rows the
last good ones. A constant rate stays.

The random numbers of an epoch depend on the seed and the epoch alone, so a resumed run repeats the
bits of an uninterrupted one. Where a device has no room for a batch, the batch is summed in parts:
the same gradient, in less memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.nn.batches import Source, pieces
from eckart.nn.place import DevicePlace
from eckart.nn.rules import Loss, NesterovSgd, optimizer_of, schedule_of
from eckart.nn.steps import GraphRoom, TrainingSteps, gradient, over_rows, steps_of
from eckart.trace import StopReason, Trace, Watcher, silent

REFINED = 0.1
"""Last share of the epochs on a GPU in which products are rounded less: the weights then rest where
those of the unrounded network do."""


FALL = 0.4
"""Epochs in which the rate falls once the loss no longer does, for each one before: two at the
least."""


@dataclass(frozen=True)
class Recipe:
    """How to descend: the resolved options of an estimator."""

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    max_iter: int = 50
    batch_size: int = 256
    patience: int = 10
    tol: float = 1e-4
    clip: float | None = None
    weight_decay: float = 0.0


@dataclass
class EpochProgress:
    """Where a run stands at the head of an epoch."""

    epoch: int = 0
    best: float = float("inf")
    since: int = 0
    fall: tuple[int, int] | None = None  # epochs in which the rate begins to fall and has fallen
    room: GraphRoom = field(default_factory=GraphRoom)
    errors: list[float] = field(default_factory=list)
    trace: Trace = field(default_factory=lambda: Trace("training loss", reason=StopReason.MAX_ITER))
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    proven: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: Any = None


def train(
    net: Any,
    loss: Loss,
    rows: Source,
    held_out: Source | None,
    recipe: Recipe,
    place: DevicePlace,
    *,
    seed: int,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
    optimizer: Any = None,
    judge: Loss | None = None,
) -> EpochProgress:
    """Train ``net`` in place; it ends with the best weights. ``optimizer`` goes on with one of an
    earlier run; ``judge`` is the loss of held-out rows, where it is another one."""
    net.to(place.device, place.dtype, memory_format=torch.channels_last)
    optimizer = optimizer or optimizer_of(
        recipe.optimizer, net, recipe.learning_rate, recipe.weight_decay
    )
    run = EpochProgress(optimizer=optimizer, kept=_copy(net))
    run.proven = run.kept
    if (kept := memory.last()) is not None:
        _resume(run, net, optimizer, kept, place)
    compiled = torch.compile(loss, dynamic=False) if place.compiled is True else loss
    steps = steps_of(net, compiled, rows, optimizer, recipe.clip, place, run.room)
    try:
        with _drawing(net, place) as begin:
            while run.epoch < recipe.max_iter and run.trace.reason is StopReason.MAX_ITER:
                memory.offer(partial(_state, run, net, optimizer))
                if place.mixed and not steps.place.fine and run.epoch >= _refined_from(run, recipe):
                    steps.refine()
                begin(int(np.random.SeedSequence([seed, run.epoch]).generate_state(1)[0]))
                order = np.random.default_rng([seed, run.epoch]).permutation(len(rows))
                value = _epoch(steps, order, recipe, run.epoch, run.fall)
                _judge(run, net, value, judge or loss, held_out, recipe, place)
                watch("epochs", run.epoch, recipe.max_iter)
    except KeyboardInterrupt:
        run.trace.reason = StopReason.INTERRUPTED
    net.load_state_dict(run.kept)
    net.eval()
    return run


@contextmanager
def _drawing(net: Any, place: DevicePlace) -> Iterator[Callable[[int], Any]]:
    """A function that seeds what the network draws: from a generator of its own on its device, so
    that fits in several threads repeat their seeds. Recorded steps are informed
    (``nn.steps``)."""
    here = torch.cuda.device(place.device) if place.cuda else nullcontext()
    with here:
        net.draws.generator = torch.Generator(place.device)
        try:
            yield net.draws.generator.manual_seed
        finally:
            net.draws.generator = None


def _refined_from(run: EpochProgress, recipe: Recipe) -> float:
    """The epoch from which products are rounded less."""
    begin, end = run.fall or (0, recipe.max_iter)
    return end - max(1.0 if run.fall else 0.0, REFINED * (end - begin))


def _epoch(
    steps: TrainingSteps,
    order: np.ndarray,
    recipe: Recipe,
    epoch: int,
    fall: tuple[int, int] | None,
) -> float:
    """One pass in the given order; the mean loss of its batches, or the value that is not
    finite."""
    steps.net.train()
    batches = pieces(steps.rows.index(order), max(1, -(-len(order) // recipe.batch_size)))
    count = len(batches)
    factor = schedule_of(recipe.schedule, recipe.max_iter * count)
    if fall is not None:
        at_first = factor(fall[0] * count)
        factor = partial(_fallen, first=fall[0] * count, last=fall[1] * count, height=at_first)
    if isinstance(steps.optimizer, NesterovSgd) and len(batches) > 1:
        steps.optimizer.restart()
    steps.begin()
    for i, at in enumerate(batches):
        value = steps.step(at, recipe.learning_rate * factor(epoch * len(batches) + i))
        if not steps.place.cuda and not math.isfinite(value):
            return float(value)
    return float(steps.total) / len(order)


def _fallen(step: int, first: int, last: int, height: float) -> float:
    """Half a cosine from ``height`` down to zero."""
    return height * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - first) / max(1, last - first))))


def _judge(
    run: EpochProgress,
    net: Any,
    value: float,
    loss: Loss,
    held_out: Source | None,
    recipe: Recipe,
    place: DevicePlace,
) -> None:
    """Note an epoch, keep the weights where they are the best so far, decide whether to stop."""
    run.epoch += 1
    error = (
        value
        if held_out is None or not np.isfinite(value)
        else mean_loss(net, loss, held_out, place)
    )
    if not np.isfinite(value) or not np.isfinite(error):
        run.trace.reason = StopReason.DIVERGED
        run.trace.note = (
            f"the loss was {value if np.isfinite(error) else error} in epoch {run.epoch}; lower "
            "learning_rate, or set clip"
        )
        run.kept = run.kept if held_out is not None else run.proven
        return
    run.trace.add(value)
    if held_out is not None:
        run.errors.append(error)
    better = error < run.best - recipe.tol * abs(run.best) if np.isfinite(run.best) else True
    run.since = 0 if better else run.since + 1
    if error < run.best or held_out is None:
        run.proven, run.kept = run.kept, _copy(net)
    run.best = min(run.best, error)
    if run.fall is not None:
        run.trace.reason = StopReason.CONVERGED if run.epoch >= run.fall[1] else run.trace.reason
    elif run.since >= recipe.patience:
        end = min(recipe.max_iter, run.epoch + max(2, math.ceil(FALL * run.epoch)))
        if recipe.schedule == "constant" or end == run.epoch:
            run.trace.reason = StopReason.CONVERGED
            return
        run.fall = (run.epoch, end)
        if held_out is not None:
            net.load_state_dict(run.kept)


def mean_loss(net: Any, loss: Loss, rows: Source, place: DevicePlace) -> float:
    """The loss on rows, nothing random in it."""
    net.eval()
    with torch.no_grad():
        parts = over_rows(rows, lambda batch: loss(net, batch).double() * len(batch.x))
    return float(sum(parts, torch.zeros((), dtype=torch.float64, device=place.device))) / max(
        1, len(rows)
    )


AFTER_INTERRUPT = 500
"""Rows that an interrupted fit is measured on: who stops a fit waits for its model, and a few
hundred rows take less than half a second."""


def judged_rows(split: Any, stopped: str) -> Any:
    """The rows of training and of judging that a certificate is measured on: all of them, but few
    after an interrupt."""
    if stopped != StopReason.INTERRUPTED.value:
        return split
    return tuple(part[:: max(1, len(part) // AFTER_INTERRUPT)] for part in split)


class Slope(NamedTuple):
    """Objective, norm of its gradient, norm of the weights, and the spread of the gradients of
    single batches (None: there is one batch)."""

    value: float
    gradient: float
    size: float
    noise: float | None


def slope(
    net: Any,
    loss: Loss,
    rows: Source,
    place: DevicePlace,
    weight_decay: float,
    batch_size: int,
    most: int = 20_000,
) -> Slope:
    """What the gradient is at the present point, without dropout, noise and sampling; on at most
    ``most`` rows.

    With g_b the gradient of batch b and g their mean, the spread is sqrt(mean ||g_b - g||^2).
    """
    net.eval()
    at = np.random.default_rng(0).permutation(len(rows))[:most]
    parts = pieces(rows.index(at), max(1, -(-len(at) // batch_size)))
    weights = [p for p in net.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=torch.float64) for p in weights]
    value = squares = 0.0
    exact, room = replace(place, mixed=False), GraphRoom()
    for part in parts:
        one = gradient(net, loss, rows, part, exact, room)
        share = len(part) / len(at)
        value += float(one) * share
        for g, p in zip(total, weights):
            if p.grad is not None:
                g += share * p.grad.detach().double()
                squares += share * float((p.grad.detach().double() ** 2).sum())
    net.zero_grad(set_to_none=True)
    plain = sum(float((g**2).sum()) for g in total)
    noise = None if len(parts) == 1 else float(np.sqrt(max(squares - plain, 0.0)))
    for g, p in zip(total, weights):
        if p.ndim > 1 and weight_decay:
            g += weight_decay * p.detach().double()
            value += 0.5 * weight_decay * float((p.detach().double() ** 2).sum())
    size = float(np.sqrt(sum(float((p.detach().double() ** 2).sum()) for p in weights)))
    return Slope(value, float(np.sqrt(sum(float((g**2).sum()) for g in total))), size, noise)


def _copy(net: Any) -> dict[str, torch.Tensor]:
    return {name: w.detach().clone() for name, w in net.state_dict().items()}


def _state(run: EpochProgress, net: Any, optimizer: Any) -> dict[str, Any]:
    """For a checkpoint: the run at the head of an epoch."""
    held = optimizer.state_dict()
    return {
        "epoch": run.epoch,
        "best": str(run.best),
        "since": run.since,
        "fall": None if run.fall is None else list(run.fall),
        "parts": run.room.parts,
        "errors": run.errors,
        "trace": [run.trace.values, run.trace.seconds],
        "kept": _plain(run.kept),
        "weights": _plain(net.state_dict()),
        "optimizer": {str(i): _plain(s) for i, s in held["state"].items()},
        "groups": [
            {n: v for n, v in g.items() if isinstance(v, (int, float))}
            for g in held["param_groups"]
        ],
    }


def _plain(named: dict[str, Any]) -> dict[str, Any]:
    """Tensors as arrays, single numbers (the step count of Adam) as numbers."""
    arrays = {
        n: v.detach().cpu().numpy() if isinstance(v, torch.Tensor) else v for n, v in named.items()
    }
    return {
        n: float(v) if isinstance(v, np.ndarray) and v.ndim == 0 else v for n, v in arrays.items()
    }


def _resume(
    run: EpochProgress, net: Any, optimizer: Any, state: dict[str, Any], place: DevicePlace
) -> None:
    """The inverse of ``_state``."""
    tensors = {
        side: {
            n: torch.as_tensor(np.ascontiguousarray(a)).to(place.device)
            for n, a in state[side].items()
        }
        for side in ("kept", "weights")
    }
    net.load_state_dict(tensors["weights"])
    held = optimizer.state_dict()
    inner = {
        int(i): {
            n: torch.as_tensor(np.array(v, order="C"))
            if isinstance(v, np.ndarray)
            else torch.tensor(v)
            for n, v in s.items()
        }
        for i, s in state["optimizer"].items()
    }
    groups = [{**g, **kept} for g, kept in zip(held["param_groups"], state["groups"])]
    optimizer.load_state_dict({"state": inner, "param_groups": groups})
    for weight, kept in optimizer.state.items():
        kept |= {
            n: torch.empty_like(weight).copy_(v) for n, v in kept.items() if v.shape == weight.shape
        }
    run.epoch, run.since, run.room.parts = state["epoch"], state["since"], state["parts"]
    run.best, run.errors, run.kept = float(state["best"]), list(state["errors"]), tensors["kept"]
    run.fall = None if state["fall"] is None else (int(state["fall"][0]), int(state["fall"][1]))
    run.proven = run.kept
    run.trace = resumed_trace("training loss", state["trace"])
    run.trace.reason = StopReason.MAX_ITER
