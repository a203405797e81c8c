"""Arrow streams of strangers: read message by message, so that a few bytes cannot become gigabytes.

A stream may say "a billion nulls" in 200 bytes (null and run-end encoded columns, batches without
columns), name one long text a million times, add to a dictionary that is copied each time, or hold
compressed buffers that inflate a thousandfold. So the descriptions are walked through, the rows
counted and the buffers seen to be plain before anything of it is converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.loading import pa, pc
from eckart.serve.problems import Problem

MOST_HEAD = 8 * 2**20
"""Bytes of the description of one message: names of 60,000 columns take four million."""
MOST_SIZE = 64 * 2**20
"""Bytes that the columns of a stream may take: columns may share a buffer, so that a body of
16 MiB may stand for a thousand times as much."""
MOST_DECODED = 32 * 2**20
"""Bytes that the codes of all dictionaries may stand for: ten thousand texts of 3 kB."""
MOST_BATCHES = 1000
"""Messages of one stream: each takes some 10 microseconds, whatever it holds."""
MOST_PARTS = 100_000
"""Columns of all record batches: each is an object of about 400 bytes, even of one row."""
LEAST_PIECE = 16
"""Bytes that a column, or a pair of metadata, takes of a description at least."""
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3
"""Numbers of the kinds of messages in Arrow's format."""
PLAIN = {2, 3, 5, 6, 7, 8, 10, 20}
"""Numbers of the types whose size in memory is the size of their bytes: whole numbers, floats, text,
truth values, decimals, dates, times with a date, long text."""
NAMES = {1: "nulls", 4: "bytes", 9: "times", 12: "lists", 13: "records", 22: "run ends"}
"""Other types that people send, in words."""
TIMESTAMP = 10


def read_table(body: bytes, rows: int, cells: int) -> Any:
    """The table of an Arrow stream with at most so many rows and cells, of plain columns."""
    try:
        table = _table(body, rows, cells)
        # lengths against buffers first: what is not there would be read, and end the process
        table.validate()
        _check_size("columns", table.nbytes, MOST_SIZE)
        table.validate(full=True)
        _check_size("dictionaries", sum(map(_decoded_size, table.columns)), MOST_DECODED)
        return pa.table(
            [_plain_column(column) for column in table.columns], names=table.column_names
        )
    except (pa.ArrowException, OSError, ValueError, IndexError, MemoryError) as error:
        said = " ".join(str(error).split())[:120]
        raise Problem(
            400,
            f"a body came that is no Arrow stream ({said}); write it with pyarrow.ipc.new_stream",
        ) from None


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise Problem(413, f"{what} must stand for at most {most:,} bytes, got {size:,}")


def _table(body: bytes, most: int, cells: int) -> Any:
    """The record batches as they are, read once every message was found harmless."""
    rows = columns = parts = 0
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(body)):
        if message.metadata.size > MOST_HEAD or number > MOST_BATCHES:
            raise Problem(
                413,
                f"an Arrow stream with {message.metadata.size:,} bytes of description in message "
                f"{number} came; send it in parts",
            )
        head = _Description(message.metadata.to_pybytes())
        if number == 0:
            columns = head.check_schema()
            continue
        kind, count = head.batch_facts()
        if kind == RECORD_BATCH:
            rows, parts = rows + count, parts + columns
        if rows > most or rows * columns > cells or parts > MOST_PARTS:
            raise Problem(
                413,
                f"a request must have at most {most:,} rows, {cells:,} cells and {MOST_PARTS:,} "
                f"columns of all record batches, got {rows:,} rows of {columns:,} columns in "
                f"{number:,} messages. Send them in parts.",
            )
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


class _Description:
    """The FlatBuffers tables that describe a message, looked at without making an object of any.

    Message {version, header type, header, length of the body, metadata}; Schema {endianness, fields,
    metadata}; Field {name, nullable, type's number, type, dictionary, children, metadata};
    RecordBatch {length, nodes, buffers, compression}; DictionaryBatch {id, data: RecordBatch, delta};
    metadata are pairs {key, value}. Positions are arrays, so that all columns are looked at together.
    """

    def __init__(self, data: bytes):
        self.data, self.size = data, len(data)
        # a view of the bytes for each width that stands anywhere, aligned or not
        self.u1, self.u2, self.u4, self.i4, self.i8 = (
            np.ndarray((max(0, self.size - int(kind[2]) + 1),), kind, data, strides=(1,))
            for kind in ("<u1", "<u2", "<u4", "<i4", "<i8")
        )
        message = self.follow(np.array([0]))
        kind = self.field(message, 1)
        self.kind = int(self.u1[kind][0]) if kind[0] else 0
        self.header = self.table(message, 2)
        self.has_metadata = bool(self.field(message, 4)[0])

    def check_schema(self) -> int:
        """The number of columns, each of a plain type; refuse a description that stands for more
        than it holds.

        Tables and texts may be pointed at from many places: 60 kB of pointers to one long name are
        gigabytes of names. Written once each, they take no more than the description itself.
        """
        if self.kind != SCHEMA:
            raise ValueError("the first message is no schema")
        fields = self.entries(self.table(self.header, 1))
        kinds = self.field(fields, 2)
        kinds = np.where(kinds > 0, self.u1[kinds], 0)
        odd = ~np.isin(kinds, list(PLAIN)) | (self.lengths(fields, 5) > 0)
        if odd.any():
            first = int(np.argmax(odd))
            name = self.text(fields[first : first + 1], 0)
            raise Problem(
                422,
                f"columns must be numbers, text or dates, got column {name[:80]!r} of "
                f"{NAMES.get(int(kinds[first]), 'another type')}",
            )
        pairs = self.entries(np.concatenate([self.table(self.header, 2), self.table(fields, 6)]))
        zones = self.table(fields[kinds == TIMESTAMP], 3)
        size = (len(fields) + len(pairs)) * LEAST_PIECE + sum(
            int(self.lengths(tables, k).sum())
            for tables, k in ((fields, 0), (zones, 1), (pairs, 0), (pairs, 1))
        )
        _check_size("descriptions of columns", size, self.size)
        return len(fields)

    def batch_facts(self) -> tuple[int, int]:
        """The kind of a batch and its rows; refuse one that is written otherwise than plainly."""
        batch = self.header
        if self.kind == DICTIONARY_BATCH:
            delta = self.field(batch, 2)[0]
            if delta and self.u1[delta]:
                raise Problem(
                    415, "dictionaries of an Arrow stream must be whole, got one that is added to"
                )
            batch = self.table(batch, 1)
        elif self.kind != RECORD_BATCH:
            raise ValueError("messages must be record batches, got another kind")
        # metadata of a batch spoke of compression before its description did
        if self.field(batch, 3)[0] or self.has_metadata:
            raise Problem(415, "an Arrow stream must have plain buffers, got compressed ones")
        length = self.field(batch, 0)[0]
        return self.kind, int(self.i8[length]) if length else 0

    def follow(self, at: np.ndarray) -> np.ndarray:
        """The places to which the offsets at these places point."""
        return at + self.u4[at].astype(np.int64)

    def field(self, tables: np.ndarray, k: int) -> np.ndarray:
        """The places of field k of these tables; 0 where it is absent."""
        described = tables - self.i4[tables].astype(np.int64)
        slot = 4 + 2 * k
        present = self.u2[described] > slot
        offset = np.where(present, self.u2[described + slot * present], 0).astype(np.int64)
        return np.where(offset > 0, tables + offset, 0)

    def table(self, tables: np.ndarray, k: int) -> np.ndarray:
        """The places of the tables, texts or vectors in field k, of those that have one."""
        at = self.field(tables, k)
        return self.follow(at[at > 0])

    def lengths(self, tables: np.ndarray, k: int) -> np.ndarray:
        """Lengths of the texts or vectors in field k; 0 where it is absent."""
        at = self.field(tables, k)
        there = at > 0
        return np.where(there, self.u4[np.where(there, self.follow(at), 0)], 0).astype(np.int64)

    def text(self, table: np.ndarray, k: int) -> str:
        """The text in field k of one table."""
        start = int(self.table(table, k)[0]) + 4
        return self.data[start : start + int(self.lengths(table, k)[0])].decode("utf-8", "replace")

    def entries(self, vectors: np.ndarray) -> np.ndarray:
        """The places of the tables in all of these vectors."""
        counts = self.u4[vectors].astype(np.int64)
        total = int(counts.sum())
        _check_size("descriptions of columns", total * LEAST_PIECE, self.size)
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.follow(np.repeat(vectors + 4, counts) + 4 * within)


def _decoded_size(column: Any) -> int:
    """Bytes of a column whose codes are replaced by what they stand for."""
    if not pa.types.is_dictionary(column.type):
        return 0
    values = column.type.value_type
    if not (pa.types.is_string(values) or pa.types.is_large_string(values)):
        return len(column) * max(1, values.bit_width // 8)
    return sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices), min_count=0).as_py()
        for chunk in column.chunks
    )


def _plain_column(column: Any) -> Any:
    """A column whose dictionary, if it has one, is replaced by the values."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
