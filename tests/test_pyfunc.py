"""MLflow's python_function: frames in and out, the same answers as the models; through MLflow
itself where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import ALS, PCA
from eckart.errors import InputError
from eckart.serve.pyfunc import _load_pyfunc

pd = pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    cells = rng.choice(30 * 60, 900, replace=False)
    ratings = [(f"u{c // 60}", int(c % 60), float(rng.integers(1, 11)) / 2) for c in cells]
    films, table = (
        ALS(3, random_state=0).fit(ratings, rows=0, columns=1, values=2),
        PCA(2).fit(rng.normal(size=(40, 5))),
    )
    films.save(folder / "films.safetensors")
    table.save(folder / "table.safetensors")
    return folder, films, table


def _asked(load, folder, films, table):
    rows = ["u1", "u2"]
    lists = load(folder / "films.safetensors").predict(pd.DataFrame({"rows": rows}), {"n": 3})
    assert (
        lists["column"].tolist()
        == films.recommend(rows, 3, by="prediction").columns.ravel().tolist()
    )
    cells = pd.DataFrame({"rows": rows, "columns": [3, 4]})
    values = load(folder / "films.safetensors").predict(cells, {"verb": "predict"})
    np.testing.assert_allclose(values["prediction"], films.predict(rows, [3, 4]))
    x = np.arange(10.0).reshape(2, 5)
    codes = load(folder / "table.safetensors").predict(pd.DataFrame(x, columns=list("abcde")))
    np.testing.assert_allclose(codes.to_numpy(), table.transform(x))


def test_frames_are_answered_as_by_the_models(files):
    _asked(lambda path: _load_pyfunc(str(path)), *files)


def test_new_entries_are_folded_in_and_bad_frames_refused(files):
    folder, _, _ = files
    model = _load_pyfunc(str(folder / "films.safetensors"))
    new = pd.DataFrame({"row": ["me"] * 3, "column": [1, 2, 3], "value": [5.0, 1.0, 4.0]})
    assert len(model.predict(new, {"n": 4})) == 4
    with pytest.raises(InputError, match="row must be one of the 30 row labels, got 'nobody'"):
        model.predict(pd.DataFrame({"rows": ["nobody"]}))
    with pytest.raises(
        InputError,
        match="verb must be one of transform, predict, recommend, similar, explain, impute, certify,",
    ):
        model.predict(pd.DataFrame({"rows": ["u1"]}), {"verb": "dance"})


def test_through_mlflow(files, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec

    options = ModelSignature(
        params=ParamSchema(
            [ParamSpec("verb", DataType.string, ""), ParamSpec("n", DataType.long, 10)]
        )
    )
    folder, films, table = files

    def load(path):
        place = tmp_path / path.stem
        if not place.exists():
            signed = options if path.stem == "films" else None
            mlflow.pyfunc.save_model(
                str(place),
                loader_module="eckart.serve.pyfunc",
                data_path=str(path),
                pip_requirements=[],
                signature=signed,
            )
        return mlflow.pyfunc.load_model(str(place))

    _asked(load, folder, films, table)
