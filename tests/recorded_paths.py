"""Runs that were written down: every solver on small data with a fixed seed, and what it did on its
way.

    python tests/recorded_paths.py              says which cases differ
    python tests/recorded_paths.py --record     writes tests/saved/paths.json anew; with words: the
    cases with them in their names
    python tests/recorded_paths.py --firmer     leaves out what this machine, or this setting of it,
    computes otherwise

A definition says where a solver must end; which steps it takes, when it restarts, halves, grows its
rank or stops, what it tells meanwhile and what it expects to cost are choices without a definition.
They are compared with the last run that was written down, so that a change of them is meant. A
change that is meant is recorded with the commit that makes it, and the difference of the file shows
which solvers it moved.

A number is kept only where rounding does not move it: each case is run twice more on data that
differ by 1e-13, and what differs by more than a tenth of the tolerance is left out (errors at the
level of rounding, counts of steps that end there). Then ``--firmer`` is run with other instructions
of the processor:

    OPENBLAS_CORETYPE=Sandybridge NPY_DISABLE_CPU_FEATURES="AVX2 FMA3" python
    tests/recorded_paths.py --firmer
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import inspect
import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from eckart.trace import use_listener

HERE = Path(__file__).parent
FILE = HERE / "saved" / "paths.json"
CLOSE = 1e-5
"""Relative tolerance of float64: other processors add in another order, and a path enlarges the
difference a little."""
CLOSE_SINGLE, CLOSE_NETWORK = 1e-3, 2e-2
"""The same of float32, and of networks that are trained in it."""
SINGLE = (
    "GloVe",
    "glove",
    "PMI",
    "pmi",
    "SkipGram",
    "skipgram",
    "words by options",
    "pca_float32",
    "gaussian_mixture_float32",
)
"""Beginnings of the names of cases that compute in float32."""
TINY = 1e-8
"""What is smaller is rounding."""
LONG = 12
"""Numbers of a list that are kept as they are; of a longer one the first, the last and sums."""
LEFT_OUT = (
    *("svt", "soft_impute_path", "bayesian_mf", "BayesianMF of rank 1", "LDA gibbs numpy"),
    *(
        "als_integer_and_date_ids",
        "als_float32",
        "TimeFactors",
        "time_factors",
        "MixedTable",
        "mixed_table",
        "network_",
    ),
)
KEPT = ("bayesian_mf_noise_and_features", "svt accelerated and plain")
"""Beginnings of cases of others that take long and say what shorter ones say too, or whose solvers
have tests of their steps of their own; and which stay."""
NETWORKS = ("autoencoder", "conv_autoencoder", "networks")
"""Beginnings of the names of cases that compute with PyTorch."""
ELSEWHERE = (
    "engine",
    "engine_reason",
    "threads",
    "n_threads",
    "n_jobs",
    "seconds",
    "device",
    "memory",
    "meaning",
    "data checksum",
    "speed",
)
"""Parts of a plan that tell of the machine, and words that explain a number."""


class Recorder:
    """A listener: stages with their last count and total."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}

    def stage(self, stage: str, done: float, total: float | None) -> None:
        name = stage.split(",", 1)[0]
        if name == "compiling":  # once on a machine
            return
        told = self.stages.setdefault(name, [0, 0.0, -1.0])
        told[:] = [told[0] + 1, float(done), -1.0 if total is None else float(total)]

    def value(self, trace: Any) -> None: ...

    def stopping(self) -> bool:
        return False


def told(value: Any, depth: int = 0) -> Any:
    """A value as JSON: numbers as they are, of an array its shape and some sums."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return float(value)
    if isinstance(value, enum.Enum):
        return value.name
    if sparse.issparse(value):
        return told(value.toarray(), depth)
    if isinstance(value, np.ndarray):
        return _sums(value)
    if isinstance(value, dict):
        return {str(k): told(v, depth + 1) for k, v in value.items() if str(k) not in ELSEWHERE}
    if isinstance(value, (list, tuple)):
        if len(value) > LONG and all(isinstance(v, (int, float, np.number)) for v in value):
            return _sums(np.asarray(value, float))
        return [told(v, depth + 1) for v in value[:LONG]] + (
            [len(value)] if len(value) > LONG else []
        )
    if dataclasses.is_dataclass(value) and depth < 9:
        return told({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, depth + 1)
    return type(value).__name__


def _sums(a: np.ndarray) -> Any:
    if a.dtype.kind == "f":
        single, a = a.dtype == np.float32, a.astype(np.float64)
        seen = np.isfinite(a)
        flat = np.where(seen, a, 0.0).ravel()
        wave = np.cos(1.0 + np.arange(flat.size) * 1.7)
        sums = [
            float(flat @ wave),
            float(np.abs(flat).sum()),
            float(flat.max(initial=-np.inf)),
            float(flat[:1].sum()),
            float(flat[-1:].sum()),
        ]
        return {
            "shape": list(a.shape),
            "gaps": int((~seen).sum()),
            "single" if single else "sums": sums,
        }
    if a.dtype.kind in "iub":
        flat = a.astype(np.float64).ravel()
        return {
            "shape": list(a.shape),
            "sums": [float(flat @ np.cos(1.0 + np.arange(flat.size) * 1.7)), float(flat.sum())],
        }
    return {"shape": list(a.shape), "first": [str(v) for v in a.ravel()[:LONG]]}


def path_of(model: Any, heard: Recorder) -> dict[str, Any]:
    """What a fitted model says of its fit: trace, plan, certificate, stages, attributes."""
    fit = model.fit_
    certificate = fit.certificate.to_dict()
    arrays = dict(fit.factors.to_state()[0])
    arrays |= model.extra_state() if hasattr(model, "extra_state") else {}
    out = {
        "quantity": fit.trace.quantity,
        "steps": len(fit.trace),
        "values": list(fit.trace.values),
        "first": list(fit.trace.values[:LONG]),
        "reason": fit.trace.reason,
        "note": fit.trace.note,
        "plan": fit.plan,
        "stages": heard.stages,
        "certificate": {
            name: certificate[name]
            for name in ("problem", "kind", "holds", "checks", "facts", "notes")
        },
        "factors": arrays,
    }
    for name, _ in inspect.getmembers(type(model), lambda v: isinstance(v, property)):
        if name.endswith("_") and name not in ("certificate_", "fit_"):
            with suppress(AttributeError):  # of another option
                out[name] = getattr(model, name)
    return told(out)


@contextmanager
def moved(scale: float) -> Any:
    """Data that are read meanwhile are multiplied by numbers 1 + ``scale`` z; scale 0: they stay as
    they are."""
    import eckart.matrix as matrix

    kinds = (matrix.Dense, matrix.Observed)
    before = [kind.__post_init__ for kind in kinds]

    def changed(array: np.ndarray) -> np.ndarray:
        z = np.random.default_rng(7).standard_normal(array.shape)
        return (array * (1 + scale * z)).astype(array.dtype)

    def dense(self: Any, *more: Any) -> None:
        before[0](self, *more)
        if (
            isinstance(self.values, np.ndarray)
            and self.values.dtype == np.float64
            and _free(self.values)
        ):
            object.__setattr__(self, "values", changed(self.values))

    def observed(self: Any, *more: Any) -> None:
        before[1](self, *more)
        if isinstance(self.data, np.ndarray) and self.data.dtype == np.float64 and _free(self.data):
            object.__setattr__(self, "data", changed(self.data))

    if scale:
        matrix.Dense.__post_init__, matrix.Observed.__post_init__ = dense, observed
    try:
        yield
    finally:
        matrix.Dense.__post_init__, matrix.Observed.__post_init__ = before


def _free(values: np.ndarray) -> bool:
    """Not whole numbers, nor shares: those may be asked to stay so."""
    seen = values[np.isfinite(values)]
    return bool(seen.size and (seen != np.round(seen)).any())


def differences(came: Any, wanted: Any, close: float = CLOSE, at: str = "") -> list[str]:
    """Where two told values are not the same; what was not kept ("~") is not compared."""
    if wanted == "~":
        return []
    if isinstance(wanted, dict):
        if not isinstance(came, dict) or came.keys() != wanted.keys():
            return [f"{at}: {came} instead of {wanted}"[:300]]
        return [
            d
            for key in wanted
            for d in differences(
                came[key],
                wanted[key],
                max(close, CLOSE_SINGLE) if key == "single" else close,
                f"{at}/{key}",
            )
        ]
    if isinstance(wanted, list):
        if not isinstance(came, list) or len(came) != len(wanted):
            return [f"{at}: {came} instead of {wanted}"[:300]]
        return [
            d
            for i, (c, w) in enumerate(zip(came, wanted))
            for d in differences(c, w, close, f"{at}/{i}")
        ]
    if isinstance(wanted, float) and isinstance(came, float):
        same = (
            came == wanted
            or abs(came - wanted) <= close * abs(wanted) + TINY
            or (came != came and wanted != wanted)
        )
        return [] if same else [f"{at}: {came!r} instead of {wanted!r}"]
    return [] if came == wanted else [f"{at}: {came!r} instead of {wanted!r}"[:300]]


def firm(runs: list[Any], close: float = CLOSE) -> Any:
    """The first of several runs, "~" where the others differ from it by more than a tenth of the
    tolerance."""
    first = runs[0]
    if isinstance(first, dict) and all(
        isinstance(r, dict) and r.keys() == first.keys() for r in runs
    ):
        return {
            key: firm(
                [r[key] for r in runs], max(close, CLOSE_SINGLE) if key == "single" else close
            )
            for key in first
        }
    if isinstance(first, list) and all(isinstance(r, list) and len(r) == len(first) for r in runs):
        return [firm([r[i] for r in runs], close) for i in range(len(first))]
    if isinstance(first, float) and all(isinstance(r, float) for r in runs):
        near = (
            max(abs(r - first) for r in runs) <= 0.1 * (close * abs(first) + TINY)
            if np.isfinite(first)
            else all(r == first for r in runs)
        )
        return float(f"{first:.8g}") if near else "~"
    return first if all(r == first for r in runs) else "~"


VERBS = (
    "transform",
    "predict",
    "predict_proba",
    "score",
    "score_samples",
    "impute",
    "reconstruction_error",
    "outlier_score",
    "fold_in",
    "perplexity",
    "bic",
)


def of_fit(make: Callable[..., Any], data: Callable[[], Any]) -> Callable[[], Any]:
    """A model of ``FITS``: its path, and what it says of the rows it was fitted to."""

    def run() -> Any:
        model, heard, x = make(), Recorder(), data()
        if "n_threads" in model.get_params():
            model.set_params(n_threads=1)
        with use_listener(heard):
            model.fit(x)
        out = path_of(model, heard)
        for verb in VERBS if isinstance(x, np.ndarray) else ():
            try:
                out[verb] = told(getattr(model, verb)(x[:7]))
            except Exception as error:
                out[verb] = f"{type(error).__name__}: {error}"
        return out

    return run


def of_saved(make: Callable[[], tuple[Any, Any]]) -> Callable[[], Any]:
    """A model of ``saved/make.py``: its path, and its answers."""

    def run() -> Any:
        from answers import ask

        heard = Recorder()
        with use_listener(heard):
            model, inputs = make()
        return path_of(model, heard) | {"answers": told(ask(model, inputs))}

    return run


def cases() -> dict[str, Callable[[], Any]]:
    import paths_complete  # noqa: F401 - lists its cases in MORE, as the next three do
    import paths_embed  # noqa: F401
    import paths_explain  # noqa: F401
    import paths_reduce  # noqa: F401
    from paths_base import MORE
    from resumable_fits import FITS

    sys.path.insert(0, str(HERE / "saved"))
    from make import CASES

    torch = importlib.util.find_spec("torch") is not None
    all_of_them = {name: of_fit(*fit) for name, fit in FITS.items()}
    all_of_them |= {name: of_saved(make) for name, make in CASES.items()} | MORE
    without = LEFT_OUT if torch else (*LEFT_OUT, *NETWORKS)
    return {
        name: do for name, do in all_of_them.items() if not name.startswith(without) or name in KEPT
    }


def run(case: str, scale: float = 0.0) -> Any:
    with warnings.catch_warnings(), moved(scale):
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(cases()[case]()))


def recorded() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def tolerance_of(case: str) -> float:
    return (
        CLOSE_NETWORK
        if case.startswith(NETWORKS)
        else CLOSE_SINGLE
        if case.startswith(SINGLE)
        else CLOSE
    )


def main() -> None:
    kept = recorded() if FILE.exists() else {}
    asked = [word for word in sys.argv[1:] if not word.startswith("--")]
    for name in [name for name in cases() if not asked or any(word in name for word in asked)]:
        begin, close = time.perf_counter(), tolerance_of(name)
        first = run(name)
        seconds = time.perf_counter() - begin
        if "--record" in sys.argv:
            kept[name] = firm([first, run(name, 1e-13), run(name, -1e-13)], close)
        if "--firmer" in sys.argv:
            kept[name] = firm([kept[name], first], close)
        print(
            f"{seconds:6.2f} s  {name}",
            differences(first, kept.get(name), close)[:3] or "",
            flush=True,
        )
    if {"--record", "--firmer"} & {*sys.argv}:
        lines = [
            f"{json.dumps(name)}: {json.dumps(kept[name], sort_keys=True)}"
            for name in sorted(cases())
        ]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
