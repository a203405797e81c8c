"""Arrow streams as a stranger may send them: whole ones of many kinds of columns, and the same with
bits, numbers, pieces and whole messages changed, lost, repeated or taken from another stream."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

MARK = struct.pack("<i", -1)
"""What stands before each message."""
INTS = (0, 1, -1, 2, 255, 2**16, 10**8, 2**30, 2**31 - 1, -(2**31))
LONGS = (0, -1, 2**33, 2**40, 2**62, 10**8, 10**9)
"""Lengths and offsets that readers have believed."""
LARGEST = 16 * 2**20
"""Bytes of a body that the service looks at."""
HEAD = 2000
"""Bytes at the beginning, where the descriptions are, that are changed most often."""


def stream(table: Any, **options: Any) -> bytes:
    """A table as an Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def bodies(count: int, seed: int) -> Iterator[bytes]:
    """So many bodies, a tenth of them as they were written."""
    rng, before, made = np.random.default_rng(seed), b"", 0
    while True:
        for table, options in _tables(rng):
            whole = stream(table, **options)
            for _ in range(3):
                if made == count:
                    return
                yield whole if rng.random() < 0.1 else _changed(whole, before, rng)
                made += 1
            before = whole


def _tables(rng: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    n, columns = int(rng.choice([1, 3, 50, 2000])), int(rng.choice([1, 40, 300]))
    words = pa.array([f"u{i % 30}" for i in range(n)])
    entries = {"row": words, "column": np.arange(n) % 300 + 1000, "value": rng.normal(size=n)}
    inflating = {f"x{j}": np.zeros(10**5) for j in range(5)}
    for columns_of in (
        {"rows": words},
        {"rows": words.dictionary_encode()},
        {"rows": np.arange(n)},
        {f"x{j}": rng.normal(size=n) for j in range(5)},
        {f"x{j}": rng.normal(size=min(n, 50)) for j in range(columns)},
        {f"x{j}": [None, 1.5] * n for j in range(5)},
        entries,
        {"rows": pa.nulls(int(rng.choice([1, 10**8])))},
        {"x0": pa.RunEndEncodedArray.from_arrays([int(10 ** rng.integers(1, 9))], [1.0])},
        {"X": [[1.0] * 5] * n},
        {"X": [{"a": 1.0}] * n},
        {"rows": pa.array([0] * n, pa.timestamp("us", "Europe/Berlin"))},
        {"rows": [b"x"] * n},
        {"rows": pa.array(["x" * 3000] * min(n, 200)).dictionary_encode()},
        {"rows": pa.array([1] * n).cast(pa.decimal128(38, 5))},
        {"rows": pa.array(["u1"] * n, pa.large_string()), "columns": [1001] * n},
    ):
        yield pa.table(columns_of), {}
    yield pa.table(inflating), {"compression": str(rng.choice(["zstd", "lz4"]))}


def _changed(whole: bytes, other: bytes, rng: Any) -> bytes:
    for _ in range(int(rng.choice([1, 1, 2, 3, 8]))):
        if len(whole) < 16:
            break
        at = int(rng.integers(min(len(whole) - 8, HEAD if rng.random() < 0.8 else len(whole))))
        way = WAYS[int(rng.integers(len(WAYS)))]
        whole = way(whole, at, other, rng)[:LARGEST]
    return whole


def _bit(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    return body[:at] + bytes([body[at] ^ 1 << int(rng.integers(8))]) + body[at + 1 :]


def _int(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    at -= at % 4
    return body[:at] + struct.pack("<i", INTS[int(rng.integers(len(INTS)))]) + body[at + 4 :]


def _long(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    at -= at % 8
    return body[:at] + struct.pack("<q", LONGS[int(rng.integers(len(LONGS)))]) + body[at + 8 :]


def _loss(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    return body[:at] + body[at + int(rng.integers(1, 64)) :]


def _gain(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    return body[:at] + rng.bytes(int(rng.integers(1, 32))) + body[at:]


def _end(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    return body[: max(at, 8)]


def _splice(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    """Messages of this stream, then those of another."""
    here, there = _messages(body), _messages(other)
    return (
        body[: here[int(rng.integers(len(here)))]] + other[there[int(rng.integers(len(there)))] :]
    )


def _repeat(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    here = [*_messages(body), len(body)]
    i = int(rng.integers(len(here) - 1))
    return (
        body[: here[i + 1]]
        + body[here[i] : here[i + 1]] * int(rng.choice([1, 5, 200]))
        + body[here[i + 1] :]
    )


def _twice(body: bytes, at: int, other: bytes, rng: Any) -> bytes:
    return body + body


WAYS = (_bit, _int, _long, _loss, _gain, _end, _splice, _repeat, _twice)


def _messages(body: bytes) -> list[int]:
    """Where messages begin."""
    return [0, *(at for at in range(8, len(body), 8) if body[at : at + 4] == MARK)]
