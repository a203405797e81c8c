"""Method, rank and ridge of ``eckart complete``: as asked for, or chosen on unseen entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.errors import InputError
from eckart.trace import StopReason, preliminary

if TYPE_CHECKING:
    from eckart.io.models.checkpoint import Steps

CHOSEN = ("method", "best", "reason", "because")
"""Attributes of a ``Chooser`` that a search decides."""


class Chooser:
    """Method, rank and ridge: as they were asked for, or chosen once on unseen entries and kept for
    the fit to everything."""

    def __init__(
        self,
        build: Callable[..., Any],
        k: int | None,
        method: str,
        seed: int,
        threads: int | None,
        shape: Any,
        because: str = "",
        side_information: dict[str, Any] | None = None,
        steps: Steps | None = None,
    ):
        from eckart.io.models.checkpoint import Steps

        self.side_information, self.steps = side_information or {}, steps or Steps()
        self.cut_short = False
        self.build, self.k, self.method, self.seed, self.threads = build, k, method, seed, threads
        self.best: dict[str, Any] = {} if k is None else {"n_components": k}
        self.reason = "as asked for"
        self.because = because
        self.tuned: Any = None
        self.table: list[Any] = []
        tunable = method in ("als", "svp")
        self.lists = build("als").feedback == "implicit" if method in ("auto", "als") else False
        ridge = method == "als" and build(method).l2 is None
        self.search = method == "auto" or (tunable and not self.lists and (k is None or ridge))
        if (
            self.side_information and self.search
        ):  # candidates are compared without attributes: the usual ridge and rank are taken
            self.search = False
            if k is None:
                self.best, self.reason = {"n_components": max(1, min(16, *shape))}, "the usual one"
        elif k is None and method == "bayes":
            self.best = {"n_components": max(1, min(16, *shape))}
            self.reason = (
                "more than needed does little harm: the prior of what is not needed shrinks"
            )
        elif k is None and method == "series":
            self.reason = "the usual number of shared factors: more than needed do little harm"
        elif method == "biases":
            self.best, self.reason = {}, "biases alone: no factors"
        elif k is None and self.lists and method == "als":
            self.reason = "the usual one for lists"
        elif k is None and method == "exact":
            self.reason = "found, not given: the least that agrees with all entries"
        elif k is None and not self.search:
            self.reason = "found, not given: what the price of the nuclear norm leaves"

    def judge(self, x: Any, share: float) -> Any:
        """The error on entries that neither the choice nor the fit saw (``report.held_out``). What
        is chosen and measured is one step: a run that was killed later takes both as they were."""
        from eckart.report.held_out import judge, judged_before

        found: Any = None

        def work() -> dict[str, Any]:
            nonlocal found
            found = judge(self.fit, x, share, self.seed)
            return {"choice": self._choice(), "held out": found.kept()}

        kept = self.steps.take("measured", work)
        self._chosen(kept["choice"])
        if self.cut_short:
            self.steps.forget("measured")
        return judged_before(kept["held out"], x, share, self.seed) if found is None else found

    def fit(self, x: Any) -> Any:
        """A model for a part of the entries; chooses what is not known yet."""
        model = self._choose(x) if self.search else None
        if model is None:
            model = self.build(self.method, "held-out", **self.best).fit(x, **self.side_information)
        self.cut_short = model.fit_.trace.reason is StopReason.INTERRUPTED
        return model

    def _choose(self, x: Any) -> Any:
        """Method, rank and ridge by unseen entries; the model of all of ``x`` where the search ends
        in one."""
        self.search = False
        try:
            return self._compared(x) if self.method == "auto" else self._tuned(x)
        except InputError as error:
            if error.code != "invalid.held_out":
                raise
            self.method = "als" if self.method == "auto" else self.method
            self.best = self.best or (
                {} if self.lists else {"n_components": max(1, min(16, *x.shape))}
            )
            self.reason = "there are too few entries to choose by"
            return None

    def _compared(self, x: Any) -> None:
        from eckart.complete.compare import compare
        from eckart.complete.compare_lists import choose

        def build(method: str, part: str, **more: Any) -> Any:
            return (
                self.build(method, f"held-out.{part}", **more)
                if part
                else self.build(method, checkpoint=None, **more)
            )

        found = (
            choose(x, build, seed=self.seed, steps=self.steps)
            if self.lists
            else compare(x, build, self.k, seed=self.seed, steps=self.steps)
        )
        self.method, self.best, self.table, self.because = (
            found.method,
            found.parameters,
            found.table,
            found.reason,
        )
        if found.method == "als":
            self.tuned = found.tuning
            self.reason = "the usual one" if found.tuning is None else _chosen_words(found.tuning)
        else:
            self.reason = (
                "more than needed does little harm"
                if found.method == "bayes"
                else "biases alone: no factors"
            )

    def _tuned(self, x: Any) -> Any:
        from eckart.complete.tune import tune

        small = min(x.shape)
        ranks = (
            [self.k]
            if self.k is not None
            else [r for r in (2, 4, 8, 16, 32, 64) if r <= small] or [small]
        )
        base = self.build(self.method, "held-out")
        kept = getattr(base, "checkpoint", None)
        given = {"l2": base.l2} if getattr(base, "l2", None) is not None else {}
        self.tuned = tune(
            x,
            n_components=ranks,
            model=base,
            random_state=self.seed,
            n_threads=self.threads,
            verbose=base.verbose,
            checkpoint=kept,
            **given,
        )
        self.best, self.reason = dict(self.tuned.best), _chosen_words(self.tuned)
        return self.tuned.model

    def _choice(self) -> dict[str, Any]:
        """What was chosen and why, for a checkpoint."""
        tuned = None if self.tuned is None else self.tuned.kept()
        return {"tuned": tuned, "table": self.table} | {
            name: getattr(self, name) for name in CHOSEN
        }

    def _chosen(self, kept: dict[str, Any]) -> None:
        """The inverse of ``_choice``."""
        from eckart.complete.compare import Judged
        from eckart.complete.tune import Tuning

        for name in CHOSEN:
            setattr(self, name, kept[name])
        self.table = [Judged.resumed(row) for row in kept["table"]]
        self.tuned = None if kept["tuned"] is None else Tuning.resumed(kept["tuned"])
        self.search = False
        # a method or a parameter that there is not is an error of the file
        self.build(self.method, **self.best)

    def final(self, x: Any, timed: AbstractContextManager[Any] | None = None) -> Any:
        """The model of all entries; ``timed`` is around its fit, which what is tried before is not
        part of."""
        if self.search:

            def work() -> dict[str, Any]:
                self._choose(x)
                return self._choice()

            with preliminary():
                self._chosen(self.steps.take("chosen", work))
        self.steps.keep()
        with timed or nullcontext():
            return self.build(self.method, **self.best).fit(x, **self.side_information)


def steps_of(
    path: Path | None,
    x: Any,
    build: Callable[..., Any],
    k: int | None,
    method: str,
    seed: int,
    share: float,
    side_information: dict[str, Any],
) -> AbstractContextManager[Steps]:
    """The steps of a command, in a file beside the checkpoint of its answer, about these entries,
    attributes and options."""
    from eckart.io.models.checkpoint import digest, parameters_of, steps_in

    about = {"method": method, "rank": k, "seed": seed, "held out": share}
    if path is not None:
        lists = method == "auto" and build("als").feedback == "implicit"
        for name in (
            (("als", "ease", "slim", "gf-cf") if lists else ("biases", "als", "bayes"))
            if method == "auto"
            else (method,)
        ):
            about |= {
                f"{parameter} of {name}": value
                for parameter, value in parameters_of(build(name)).items()
            }
        if side_information:  # attributes belong to ids
            about["attributes"] = digest(
                x.rows,
                x.columns,
                *(
                    part
                    for name in sorted(side_information)
                    for part in _arrays(side_information[name])
                ),
            )
    return steps_in(path and path.with_name(f"{path.name}.steps"), "eckart complete", x, about)


def _arrays(attributes: Any) -> Iterator[Any]:
    """What attributes of rows and columns, or times, consist of."""
    for part in attributes:
        if hasattr(part, "column_names"):
            yield np.asarray(part.column_names)
            yield from (column.to_numpy() for column in part.columns)
        elif hasattr(part, "indptr"):
            yield from (part.indptr, part.indices, part.data)
        else:
            yield np.asarray(str(part))


def _chosen_words(tuned: Any) -> str:
    names = {"n_components": "rank", "l2": "ridge"}
    counts = ", ".join(
        f"{names[name]} {value:.4g}" for name, value in tuned.best.items() if name in names
    )
    return (
        f"{counts} of {len(tuned.table)} candidates had the least error on unseen entries; "
        f"{tuned.stopped}"
    )
