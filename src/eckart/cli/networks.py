"""eckart reduce --model autoencoder."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from eckart.cli.common import Table, check_image, lasting, parse_components, say
from eckart.errors import wrong


def reduce_by_network(
    kind: str,
    table: Table,
    file: str,
    components: str,
    image: tuple[int, int] | None,
    options: dict[str, Any],
    where: dict[str, Any],
    shared: dict[str, Any],
) -> None:
    """Fit an autoencoder, say what came of it, write what was asked for."""
    matrix, quiet = table.matrix, shared["quiet"]
    check_image(image, matrix.shape[1])
    shape = image if image is not None else _square(matrix.shape[1])
    model = _model(kind, components, shape, options, shared)
    begin = time.perf_counter()
    model.fit(matrix)
    if not quiet:
        _summary(model, file, time.perf_counter() - begin)
    if where["out"] is not None:
        rows = _write(model, matrix, where["out"], where["index"])
        say(quiet, "codes", f"{where['out']} ({rows:,} rows)")
    if where["target"] is not None:
        model.save(where["target"])
        say(quiet, "model", str(where["target"]))
    if where["report"] is not None:
        from eckart.report.networks import network_report

        sample, marks = table.sample()
        network_report(model, sample, name=Path(file).name, labels=marks, image=shape).write(where["report"])
        say(quiet, "report", str(where["report"]))


def _model(kind: str, components: str, shape: Any, options: dict[str, Any], shared: dict[str, Any]) -> Any:
    from eckart.reduce.autoencoder import Autoencoder
    from eckart.reduce.conv_autoencoder import ConvAutoencoder

    k = 2 if components == "auto" else parse_components(components)
    if not isinstance(k, int):
        raise wrong("--components", components, "a number, for an autoencoder")
    more = {
        "hidden": _widths(options["hidden"]),
        "max_iter": options["epochs"],
        "device": options["device"],
        "random_state": shared["seed"],
        "n_threads": shared["threads"],
        "checkpoint": shared["checkpoint"],
        "verbose": not shared["quiet"] and sys.stderr.isatty(),
        "init": "pca",
    }
    return Autoencoder(k, **more) if kind == "autoencoder" else ConvAutoencoder(k, image=shape, **more)


def _widths(text: str | None) -> list[int] | None:
    """Widths from a list with commas; an empty text gives no hidden layer."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise wrong("--hidden", text, "widths separated by commas, such as 512,256") from None


def _square(n: int) -> tuple[int, int] | None:
    """Height and width of rows that are square images, as far as one can tell from their length."""
    side = round(n**0.5)
    return (side, side) if side * side == n and side >= 4 else None


def _summary(model: Any, file: str, seconds: float) -> None:
    from eckart.report.networks import in_one_sentence

    f, c, plan = model.fit_.factors, model.certificate_, model.fit_.plan
    say(False, "data", f"{file}: {f.rows:,} rows x {f.n:,} columns")
    say(False, "reduced", f"to {f.k} numbers by {plan['layers']} ({f.size:,} weights), in {lasting(seconds)}")
    say(False, "risk", in_one_sentence(c, f.k)[0])
    say(False, "trained", f"{plan['solver']}, {plan['epochs']} epochs, {plan['device']}: {c['stopped']}")
    verdict = "holds" if c.holds else "DOES NOT HOLD: " + c.reason
    say(False, "evidence", f"certificate {verdict} ({c.kind})")


def _write(model: Any, matrix: Any, out: Path, index: str | None) -> int:
    from eckart.io.tables.write import write_table
    from eckart.matrix import row_parts

    blocks = ((model.transform(part), part.rows) for part in row_parts(matrix))
    return write_table(out, [str(n) for n in model.get_feature_names_out()], blocks, index or "row")
