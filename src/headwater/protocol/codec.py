"""Messages as bytes: msgpack, with Arrow schemas as their IPC bytes.

PROMISE  What is read has the types that the message declares, or it is an InvalidRequest: nothing that came over the
         wire is looked at before that.
         A field that is not known is refused: it means something that this version would pass over.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headwater.errors import CorruptData, InvalidRequest
from headwater.topics.schema import pack_schema, unpack_schema

VERSION = 1
"""Of the protocol.  A server says in `hello` which versions it speaks."""

AnyMessage = TypeVar("AnyMessage")


def _to_wire(value: object) -> object:
    if isinstance(value, pa.Schema):
        return pack_schema(value)
    raise TypeError(f"{type(value).__name__} does not travel")


def _from_wire(kind: type, value: object) -> object:
    if kind is pa.Schema and isinstance(value, bytes):
        try:
            return unpack_schema(value)
        except CorruptData as error:
            # Nothing stored is wrong: the sender's bytes are.  A ValueError is what msgspec takes for a wrong type.
            raise ValueError(f"these bytes are no schema: {error}") from error
    raise TypeError(f"{kind.__name__} does not travel")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_wire)


_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
_making = threading.Lock()
"""One at a time: msgspec shows what it knows of a class to other threads before it is whole, and one that decodes by it
then reads what is not there, which ends the process (shown by tests/unit/protocol/test_codec_threads.py)."""


def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        with _making:
            found = _decoders.get(kind)
            if found is None:
                found = _decoders[kind] = msgspec.msgpack.Decoder(kind, dec_hook=_from_wire)
    return found


def pack(message: object) -> bytes:
    """Its bytes; InvalidRequest where a value of it has none: half a character, a number above 64 bits."""
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"a message that cannot be sent: {error}") from error


def unpack(data: bytes | memoryview, kind: type[AnyMessage]) -> AnyMessage:
    """A message of this kind; InvalidRequest where it is none."""
    try:
        found: AnyMessage = _decoder(kind).decode(data)
        return found
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise InvalidRequest(f"a message that cannot be read: {error}") from error
