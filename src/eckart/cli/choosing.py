"""Method, rank and ridge of ``eckart complete``: as asked for, or chosen on unseen entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Chooser:
    """Method, rank and ridge: as they were asked for, or chosen once on unseen entries and kept for the fit to everything."""

    def __init__(
        self,
        build: Callable[..., Any],
        k: int | None,
        method: str,
        seed: int,
        threads: int | None,
        shape: Any,
        because: str = "",
        beside: dict[str, Any] | None = None,
    ):
        self.beside = beside or {}
        self.build, self.k, self.method, self.seed, self.threads = build, k, method, seed, threads
        self.best: dict[str, Any] = {} if k is None else {"n_components": k}
        self.reason = "as asked for"
        self.because = because
        self.tuned: Any = None
        self.table: list[Any] = []
        tunable = method in ("als", "svp")
        base = build(method) if method == "als" else None
        ridge = base is not None and base.l2 is None and base.feedback == "explicit"
        self.search = method == "auto" or (tunable and (k is None or ridge))
        if (
            self.beside and self.search
        ):  # candidates are compared without attributes: the usual ridge and rank are taken
            self.search = False
            if k is None:
                self.best, self.reason = {"n_components": max(1, min(16, *shape))}, "the usual one"
        elif k is None and method == "bayes":
            self.best = {"n_components": max(1, min(16, *shape))}
            self.reason = "more than needed does little harm: the prior of what is not needed shrinks"
        elif k is None and method == "series":
            self.reason = "the usual number of shared factors: more than needed do little harm"
        elif method == "biases":
            self.best, self.reason = {}, "biases alone: no factors"
        elif k is None and method == "exact":
            self.reason = "found, not given: the least that agrees with all entries"
        elif k is None and not self.search:
            self.reason = "found, not given: what the price of the nuclear norm leaves"

    def fit(self, x: Any) -> Any:
        """A model for a part of the entries; chooses what is not known yet."""
        if not self.search:
            return self.build(self.method, part=True, **self.best).fit(x, **self.beside)
        from eckart.errors import InputError

        self.search = False
        try:
            return self._compared(x) if self.method == "auto" else self._tuned(x)
        except InputError as error:
            if "held_out" not in str(error):
                raise
            self.method = "als" if self.method == "auto" else self.method
            self.reason = "there are too few entries to choose by"
            return self.build(self.method, part=True, **self.best).fit(x)

    def _compared(self, x: Any) -> Any:
        from eckart.complete.compare import compare

        found = compare(
            x, lambda method, **more: self.build(method, part=True, checkpoint=None, **more), self.k, seed=self.seed
        )
        self.method, self.best, self.table, self.because = found.method, found.parameters, found.table, found.reason
        if found.method == "als":
            self.tuned = found.tuning
            self.reason = "the usual one" if found.tuning is None else _chosen_words(found.tuning)
        else:
            self.reason = "more than needed does little harm" if found.method == "bayes" else "biases alone: no factors"
        return self.build(self.method, part=True, **self.best).fit(x)

    def _tuned(self, x: Any) -> Any:
        from eckart.complete.tune import tune

        small = min(x.shape)
        ranks = [self.k] if self.k is not None else [r for r in (2, 4, 8, 16, 32, 64) if r <= small] or [small]
        base = self.build(self.method, part=True)
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

    def final(self, x: Any) -> Any:
        """The model of all entries."""
        if self.search:
            from eckart.trace import preliminary

            with preliminary():
                self.fit(x)
        return self.build(self.method, **self.best).fit(x, **self.beside)


def _chosen_words(tuned: Any) -> str:
    names = {"n_components": "rank", "l2": "ridge"}
    told = ", ".join(f"{names[name]} {value:.4g}" for name, value in tuned.best.items() if name in names)
    return f"{told} of {len(tuned.table)} candidates had the least error on unseen entries; {tuned.stopped}"
