"""All contract tests, and a fit of every model, on a CUDA device; prints one table. By hand, where
there is a GPU: ``make test-gpu``.

    python tests/gpu.py [cuda|cpu|pretended] [--no-cpu] [--one]

``--no-cpu``: without the fits of the CPU engine beside them, whose kernels take minutes to compile
on a new machine. ``pretended`` needs no GPU: a card that is not there (``engines/pretended.py``)
refuses what CUDA would, and the table tells how often a fit copies to it and back and waits for it.
Files run side by side, in processes of their own, or with ``--one`` one after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


FILES = (
    "test_ridge_evidence",
    "test_mixture_contract",
    "test_device_gaps",
    "test_losses",
    "test_device_losses",
    "test_nonnegative",
    "test_topics",
    "test_pairs",
    "test_pair_step",
    "test_triangles",
    "test_contract",
)


def contracts(device: str, at_once: int) -> Iterator[tuple[str, str]]:
    """(file, passed and failed) of the contract tests of the engine ``torch`` on this device."""

    def tested(name: str) -> list[tuple[str, str]]:
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            str(HERE / "engines" / f"{name}.py"),
            "-k",
            "torch",
            *(
                ["-n", "6" if at_once > 1 and name == "test_contract" else "0"]
                if find_spec("xdist")
                else []
            ),
        ]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, "ECKART_TORCH_DEVICE": device}
        )
        lines = (
            done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["no output"]
        )
        bad = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return [(name, lines[-1]), *(("", line) for line in bad[:12])]

    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(tested, name) for name in FILES]):
            yield from done.result()


def fits(device: str, beside: bool) -> Iterator[tuple[str, str]]:
    """(case, what came of it) for every model of ``engines/exchange.py``: the certificate, the same
    bits twice, and (``beside``) the answers against the CPU engine."""
    import warnings

    import numpy as np
    from exchange import CASES, data
    from pretended import PretendedCard

    import eckart
    from eckart.engines import engine_named
    from eckart.engines.cuda import made

    warnings.simplefilter("ignore")
    for case, (name, options, kind, verbs) in CASES.items():
        x, answers, fallen, certificates, card = data()[kind], [], set(), [], PretendedCard()
        place, device_name = (card, "cuda") if device == "pretended" else (nullcontext(), device)
        try:
            with place:
                for engine in (
                    made(None, device_name),
                    made(None, device_name),
                    *([engine_named("cpu")] if beside else []),
                ):
                    model = getattr(eckart, name)(**options, engine=engine)
                    if "random_state" in model.get_params():
                        model.set_params(random_state=0)
                    model.fit(x)
                    certificates.append(model.certificate_.holds)
                    answers.append([np.asarray(getattr(model, verb)(x)) for verb in verbs])
                    fallen |= getattr(engine, "fallen", set())
            same = all(a.tobytes() == b.tobytes() for a, b in zip(answers[0], answers[1]))
            apart = max(
                [
                    float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
                    for a, b in zip(answers[0], answers[-1])
                ],
                default=0.0,
            )
            words = (
                f"{'holds' if certificates[0] else 'FAILS':<6} "
                f"{'same bits' if same else 'DIFFERENT':<10}"
            )
            words += f" {apart:8.1e} from the cpu;" if beside else ""
            words += f" on cpu: {len(fallen)} primitives"
            if device == "pretended":
                up, down, waits = (
                    sum(m.way == "up" for m in card.moves),
                    sum(m.way == "down" for m in card.moves),
                    sum(card.waits.values()),
                )
                words += f"; of two fits {up} copies up, {down} down, {waits} waits"
            if certificates[0] != certificates[-1]:
                words += f" (the cpu's certificate {'holds' if certificates[-1] else 'fails'})"
        except Exception as error:
            words = f"ERROR  {type(error).__name__}: {str(error)[:120]}"
        yield case, words


if __name__ == "__main__":
    import torch

    asked = [word for word in sys.argv[1:] if not word.startswith("--")]
    device = asked[0] if asked else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "this PyTorch sees no CUDA device; `python tests/gpu.py pretended` runs the "
            "same tests on a card that is not there, `cpu` on CPU tensors"
        )
    named = {"cuda": torch.cuda.get_device_name, "pretended": lambda: "a pretended card"}.get(
        device, lambda: "CPU tensors"
    )
    print(f"PyTorch {torch.__version__} on {named()}")
    sys.path.insert(0, str(HERE / "engines"))
    table = []
    for rows in (
        contracts(device, 1 if "--one" in sys.argv else len(FILES)),
        fits(device, "--no-cpu" not in sys.argv),
    ):
        for name, words in rows:
            print(f"{name:<24} {words}", flush=True)
            table.append(words)
    sys.exit(any("failed" in words or "ERROR" in words or "DIFFERENT" in words for words in table))
