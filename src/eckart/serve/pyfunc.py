"""The flavour of MLflow: a saved model as ``python_function``. MLflow calls ``_load_pyfunc`` by the
name of this module; eckart itself does not need MLflow.

    mlflow.pyfunc.save_model("folder", loader_module="eckart.serve.pyfunc",
    data_path="m.safetensors")
    mlflow.pyfunc.load_model("folder").predict(frame, params={"verb": "recommend"})

A frame is asked as a request to the service is (see ``schema``): columns named as fields of the
verb are these fields, any other frame is X, the new rows. Other fields stand in ``params``. The
answer is a frame.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from eckart.errors import InputError
from eckart.loading import pa
from eckart.query.answers import answer, check_limits
from eckart.query.requests import KINDS, VERBS, parse
from eckart.serve.app import Limits
from eckart.serve.models import Served, open_model

UNLIMITED = Limits(rows=2**62, cells=2**62, answer=2**62, letters=2**62)
"""The caller is in the same process: its memory is its own."""


class Asked:
    """What MLflow asks: frames in, frames out. MLflow fills in the defaults of a signature, so
    fields of other verbs are no error here."""

    def __init__(self, served: Served):
        self.served = served

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> Any:
        """The answer to ``params["verb"]`` (recommend for a completion, neighbours for an
        embedding, else transform) as a pandas frame."""
        given = dict(params or {})
        verb = given.pop("verb", None) or self._usual()
        if verb not in VERBS:
            raise InputError(f"verb must be one of {', '.join(self.served.verbs)}, got {verb!r}")
        known = {f.name for f in fields(VERBS[verb])}
        given = {name: value for name, value in given.items() if name in known or name not in KINDS}
        table = (
            frame
            if isinstance(frame, pa.Table)
            else pa.Table.from_pandas(frame, preserve_index=False)
        )
        names = table.column_names
        if set(names) <= known - {"X"}:
            asked = parse(verb, given | {name: table.column(name).to_pylist() for name in names})
        elif "recommend" in self.served.verbs and sorted(names) == ["column", "row", "value"]:
            x = {f"{name}s": table.column(name).to_pylist() for name in names}
            asked = parse(verb, given | {"X": x})
        else:
            asked = parse(verb, given, table)
        check_limits(self.served.model, asked, UNLIMITED)
        import pandas as pd

        return pd.DataFrame(answer(self.served.model, asked).columns)

    def _usual(self) -> str:
        return next(
            verb
            for verb in ("recommend", "neighbours", "transform", "certify")
            if verb in self.served.verbs
        )


def _load_pyfunc(path: str) -> Asked:
    """Called by MLflow with the file that was its ``data_path``."""
    return Asked(open_model(Path(path).stem, Path(path)))
