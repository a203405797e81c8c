"""Damaged files of every kind that eckart reads: tables, sparse matrices, vectors, models,
checkpoints, texts. Only errors in words may come out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import feather
from scipy import io, sparse

import eckart
from campaign import Broken
from eckart.errors import EckartError
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.text.documents import Documents

ABOUT = {"model": "campaign"}


def samples(folder: Path) -> dict[str, dict[str, Any]]:
    """Small sound files, by name, with the options that read them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3))
    np.save(folder / "a.npy", x)
    np.savez(folder / "b.npz", x=x)
    np.savez_compressed(folder / "c.npz", x=x, y=x)
    sparse.save_npz(folder / "d.npz", sparse.csr_array(x))
    sparse.save_npz(folder / "e.npz", sparse.coo_array(x), compressed=False)
    io.mmwrite(folder / "f.mtx", sparse.coo_array(x))
    io.mmwrite(folder / "g.mtx", x)
    frame = pd.DataFrame(
        x, columns=list("abc"), index=pd.Index([f"r{i}é" for i in range(6)], name="id")
    )
    frame.to_parquet(folder / "h.parquet")
    frame.to_parquet(folder / "i.parquet", compression=None)
    feather.write_feather(
        pa.Table.from_pandas(frame), folder / "j.feather", compression="uncompressed"
    )
    feather.write_feather(pa.Table.from_pandas(frame), folder / "k.feather", compression="zstd")
    frame.to_csv(folder / "l.csv")
    frame.to_csv(folder / "m.tsv", sep="\t")
    words = eckart.Vectors(["king", "queen", "été"], x[:3].astype(np.float32))
    for name in ("n.txt", "o.bin", "p.vec", "q.safetensors"):
        words.write(folder / name)
    eckart.PCA(2).fit(x).save(folder / "r.safetensors")
    eckart.ALS(1, max_iter=2, random_state=0).fit(np.where(rng.random(x.shape) < 0.8, x, 0.5)).save(
        folder / "s.safetensors"
    )
    Checkpoint(folder / "t.checkpoint", ABOUT, 0.0).save({"x": x, "y": x[0]})
    (folder / "u.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": f"é word {i}"}) + "\n" for i in range(6))
    )
    (folder / "v.txt").write_text("one text\nand anothér\n")
    (folder / "w.csv").write_text(
        "user,item,rating\n" + "".join(f"u{i % 3},i{i % 4},{i}.5\n" for i in range(9))
    )
    told = {
        "u.jsonl": {"text": "text"},
        "w.csv": {"rows": "user", "columns": "item", "values": "rating"},
        "c.npz": {"key": "x"},
        "l.csv": {"index": "id"},
        "m.tsv": {"index": "id"},
    }
    return {f.name: told.get(f.name, {}) for f in sorted(folder.iterdir()) if f.is_file()}


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three bytes or bits changed, runs cut out, put in or repeated, or the end lost."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        kind, at, size = (
            rng.integers(6),
            int(rng.integers(max(1, len(out)))),
            int(rng.integers(1, 9)),
        )
        if kind == 0 and out:
            out[at] = rng.integers(256)
        elif kind == 1 and out:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = rng.bytes(size)
        elif kind == 4:
            out[at:at] = out[at : at + size]
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def opened(path: Path, name: str, options: dict[str, Any]) -> None:
    """Read a file by the door it belongs to, and look at every entry."""
    if name[0] in "nopq":
        np.asarray(eckart.read_vectors(path).vectors).sum()
    elif name[0] in "rs":
        eckart.load(path)
    elif name[0] == "t":
        Checkpoint(path, ABOUT, 0.0).load()
    elif name[0] in "uv":
        sum(len(text) for _, text in Documents(path, **options))
    else:
        matrix = eckart.read(path, **options)
        np.asarray(matrix.values if hasattr(matrix, "values") else matrix.data).sum()


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    place = folder / "sound"
    place.mkdir(exist_ok=True)
    options = samples(place)
    sound = {name: (place / name).read_bytes() for name in options}
    names = list(sound)
    for name in names:
        opened(place / name, name, options[name])
    while True:
        name = names[int(rng.integers(len(names)))]
        path = folder / f"damaged{Path(name).suffix}"
        data = changed(sound[name], rng)
        path.write_bytes(data)
        try:
            opened(path, name, options[name])
            yield "read"
        except EckartError:
            yield "refused in words"
        except Exception as error:
            kept = Path(f"broken-{name}")
            shutil.copy(path, kept)
            raise Broken(f"{name} (kept as {kept}): {type(error).__name__}: {error}") from error
