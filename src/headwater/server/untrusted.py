"""Rows from anybody: nothing of them is looked at before it is known that looking is safe.

Arrow takes an array at its word: offsets that lead out of a buffer, lengths that no buffer has, text that is no text.
Reading one value of such an array can end the process.  So rows that came over the wire go through here first.

ORDER    The schema, then the counts, then `validate(full=True)`, then values: each step is safe because of the last.
BYTES    An IPC stream is taken apart message by message (ipc_messages.py), and refused before anything is decoded
         where it says that it would become too large.
PROMISE  What leaves here holds exactly the schema's columns (names, types, nullability), valid to the last byte, with
         no null where none may be, within the limits, and without metadata of the sender's.
         Whatever comes in, the answer is rows, InvalidRequest or TooLarge.
NOT HERE Dictionaries, extensions and views as such: the schema of a topic has none (topics/schema.py), and only what
         has exactly that schema is let in.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import InvalidRequest, TooLarge
from headwater.server.ipc_messages import check_compression, check_schema_message, messages_of
from headwater.server.settings import ServerLimits
from headwater.topics.columns import may_lack_values
from headwater.topics.schema import same_schema

TEXT_MAX = 300
"""Of what Arrow says of bad bytes; it may quote them."""


def checked_batch(
    batch: pa.RecordBatch, schema: pa.Schema, limits: ServerLimits, *, nulls_in_any: bool = False
) -> pa.RecordBatch:
    """The same rows, safe to use.  `nulls_in_any` is for rows that are keys to delete: their other columns are null,
    whether they may be or not; whoever asks for it looks at the key by itself."""
    check_schema(batch.schema, schema)
    _check_counts(batch.num_rows, batch.get_total_buffer_size(), limits)
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidRequest(f"rows that are no valid Arrow: {_shown(error)}") from error
    # Buffers may overlap: written out again, each has its own bytes.
    _check_counts(batch.num_rows, batch.nbytes, limits)
    if not nulls_in_any:
        _check_nulls(batch, schema)
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def check_schema(sent: pa.Schema, schema: pa.Schema) -> None:
    """InvalidRequest unless both have the same columns; metadata is not looked at."""
    if same_schema(sent, schema):
        return
    if len(sent) != len(schema):
        raise InvalidRequest("the rows have another number of columns", columns=len(sent), wanted=len(schema))
    for one, other in zip(sent, schema, strict=True):
        if not one.equals(other):
            raise InvalidRequest("the rows have another schema", column=_field_text(one), wanted=_field_text(other))
    raise InvalidRequest("the rows have another schema: their bytes are of the other endianness")


def read_ipc(
    data: bytes | memoryview, schema: pa.Schema, limits: ServerLimits, *, nulls_in_any: bool = False
) -> list[pa.RecordBatch]:
    """The batches of an Arrow IPC stream, all of it and nothing after it; rows and bytes are counted together."""
    if len(data) > limits.message_bytes_max:
        raise TooLarge("a message is too large: split it", bytes=len(data), bytes_max=limits.message_bytes_max)
    try:
        return _read(data, schema, limits, nulls_in_any)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # ArrowMemoryError too: a length that nobody can allocate is the sender's mistake.
        raise InvalidRequest(f"bytes that are no Arrow IPC stream: {_shown(error)}") from error


def _read(
    data: bytes | memoryview, schema: pa.Schema, limits: ServerLimits, nulls_in_any: bool
) -> list[pa.RecordBatch]:
    messages = messages_of(data)
    first = next(messages)
    check_schema_message(first)
    check_schema(pa.ipc.read_schema(first), schema)
    found: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for message in messages:
        check_compression(message, limits)
        batch = checked_batch(pa.ipc.read_record_batch(message, schema), schema, limits, nulls_in_any=nulls_in_any)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        _check_counts(rows, size_bytes, limits)
        found.append(batch)
    return found


def _check_counts(rows: int, size_bytes: int, limits: ServerLimits) -> None:
    if rows > limits.rows_max:
        raise TooLarge("a message has too many rows: split it", rows=rows, rows_max=limits.rows_max)
    if size_bytes > limits.message_bytes_max:
        raise TooLarge("a message is too large: split it", bytes=size_bytes, bytes_max=limits.message_bytes_max)


def _check_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise InvalidRequest("a column that may not be null holds null", column=field.name)
        if may_lack_values(field)(column):
            raise InvalidRequest("a column holds null below the top where none may be", column=field.name)


def _field_text(field: pa.Field) -> str:
    try:
        return f"{field.name} {field.type}{'' if field.nullable else ' not null'}"[:TEXT_MAX]
    except UnicodeDecodeError:
        return "a name that is no text"


def _shown(error: BaseException) -> str:
    return " ".join(str(error).split())[:TEXT_MAX]
