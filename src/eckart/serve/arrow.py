"""Arrow streams of strangers: read message by message, so that a few bytes cannot become gigabytes.

A stream may say "a billion nulls" in 200 bytes (null and run-end encoded columns, batches without
columns), or hold compressed buffers that inflate a thousandfold. So the rows of a batch are counted
and its buffers are seen to be plain before anything of it is converted.
"""

from __future__ import annotations

import struct
from typing import Any

from eckart.loading import pa, pc
from eckart.serve.problems import Problem

MOST_HEAD = 8 * 2**20
"""Bytes of the description of one message: names of 60,000 columns take four million."""
MOST_TEXT = 64 * 2**20
"""Bytes beyond the body's own that codes of a dictionary, or columns that share their buffers, may
stand for."""
MOST_BATCHES = 1000
"""Messages of one stream: each takes some 10 microseconds, whatever it holds."""
RECORD_BATCH, DICTIONARY_BATCH = 3, 2
"""Numbers of the kinds of messages in Arrow's format."""


def read_table(body: bytes, rows: int, cells: int) -> Any:
    """The table of an Arrow stream with at most so many rows and cells, of plain columns."""
    try:
        table = _table(body, rows, cells)
        if table.nbytes > 4 * len(body) + MOST_TEXT:
            raise Problem(
                413,
                f"columns must stand for at most {4 * len(body) + MOST_TEXT:,} bytes, got "
                f"{table.nbytes:,}",
            )
        table.validate(full=True)
        return pa.table(
            [_plain_column(column) for column in table.columns], names=table.column_names
        )
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        IndexError,
        struct.error,
        UnicodeDecodeError,
        MemoryError,
    ) as error:
        said = " ".join(str(error).split())[:120]
        raise Problem(
            400,
            f"a body came that is no Arrow stream ({said}); write it with pyarrow.ipc.new_stream",
        ) from None


def _table(body: bytes, most: int, cells: int) -> Any:
    """The record batches as they are, read once every message was found harmless."""
    rows = columns = 0
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(body)):
        head = message.metadata
        if head.size > MOST_HEAD or number > MOST_BATCHES:
            raise Problem(
                413,
                f"an Arrow stream with {head.size:,} bytes of description in message "
                f"{number} came; send it in parts",
            )
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
            columns = len(schema)
            for field in schema:
                _check_type(field)
            continue
        count, compressed = _batch_facts(head.to_pybytes())
        if compressed:
            raise Problem(415, "an Arrow stream must have plain buffers, got compressed ones")
        rows += count if message.type == "record batch" else 0
        if rows > most or rows * columns > cells:
            raise Problem(
                413,
                f"a request must have at most {most:,} rows and {cells:,} cells, got {rows:,} rows. "
                "Send them in parts.",
            )
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


def _check_type(field: Any) -> None:
    """Only columns whose size in memory is the size of their bytes, or of text that a dictionary
    names."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_decimal,
    )
    if not any(is_kind(kind) for is_kind in plain):
        raise Problem(
            422,
            f"columns must be numbers, text or dates, got column {field.name[:80]!r} of type "
            f"{str(field.type)[:80]}",
        )


def _plain_column(column: Any) -> Any:
    """A column whose dictionary, if it has one, is replaced by the values."""
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.type.value_type
    if pa.types.is_string(values) or pa.types.is_large_string(values):
        longest = max(
            (
                pc.max(pc.binary_length(c.dictionary)).as_py() or 0
                for c in column.chunks
                if len(c.dictionary)
            ),
            default=0,
        )
        if longest * len(column) > MOST_TEXT:
            raise Problem(
                413,
                f"texts of a dictionary must take at most {MOST_TEXT:,} bytes, got up to "
                f"{longest * len(column):,}",
            )
    return column.cast(values)


def _batch_facts(head: bytes) -> tuple[int, bool]:
    """Rows of a batch and whether its buffers are compressed, out of the FlatBuffers table that
    describes a message.

    Message {version, header type, header, ...}; RecordBatch {length, nodes, buffers, compression};
    DictionaryBatch {id, data: RecordBatch, isDelta}.
    """
    message = _follow(head, 0)
    kind, header = _field(head, message, 1), _field(head, message, 2)
    batch = _follow(head, header)
    if head[kind] == DICTIONARY_BATCH:
        batch = _follow(head, _field(head, batch, 1))
    elif head[kind] != RECORD_BATCH:
        raise ValueError("messages must be record batches, got another kind")
    at = _field(head, batch, 0)
    return (struct.unpack_from("<q", head, at)[0] if at else 0), bool(_field(head, batch, 3))


def _follow(data: bytes, at: int) -> int:
    """The place to which the offset at this place points."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, k: int) -> int:
    """The place of field k of a FlatBuffers table; 0 where it is absent."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    size, slot = int(struct.unpack_from("<H", data, vtable)[0]), 4 + 2 * k
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0]) if slot < size else 0
    return table + offset if offset else 0
