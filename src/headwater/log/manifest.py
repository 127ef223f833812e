"""`trim`: where the walk over a log's slots begins, who owns the log, and what lies before.

    next       the slot where the walk begins; slots below it are no part of it any more
    epoch      of the owner that wrote it last, and its token
    segments   what was sealed below `next` and is still kept: as one object, or as slots that are large enough to stay
    base       where none is kept, the last that was let go of: its index still says every partition's next offset
    end        where those segments end: what the first frame after them must say

It is written by conditional put alone, always on the etag that was read: so a claim, a trim, a segment that replaces
another and a deletion are each one swap, and whoever was fenced finds that out before it changes anything.

FORM     JSON, one object, with the CRC-32C of everything else in `crc` (of the text without it, keys sorted): another
         language reads it with what it has.  docs/formats/objects.md has an example.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.errors import CorruptData, UnknownFormat
from headwater.frames.checksum import crc32c
from headwater.log.chain import ChainEnd

FORMAT = 1


@dataclass(frozen=True)
class KeptSegment:
    """A sealed segment below the walk."""

    first_lsn: int
    generation: int
    size: int
    created_us: int
    end: ChainEnd
    opening: bytes
    """Its segment frame."""
    slots: tuple[tuple[int, int], ...] = ()
    """(slot, bytes of the object) of each that it lies in; nothing: it is one object."""
    fences: tuple[int, ...] = ()
    """Which of those are fences: never deleted."""

    @property
    def last_lsn(self) -> int:
        return self.end.next_lsn - 1


@dataclass(frozen=True)
class Manifest:
    log_id: bytes
    window: int
    next: int = 1
    epoch: int = 0
    token: bytes = b""
    segments: tuple[KeptSegment, ...] = ()
    base: KeptSegment | None = None
    end: ChainEnd = field(default_factory=lambda: ChainEnd(1, 0, 0, 0))

    def owned_by(self, epoch: int, token: bytes) -> Manifest:
        return replace(self, epoch=epoch, token=token)


def pack_manifest(manifest: Manifest) -> bytes:
    content: dict[str, Any] = {
        "format": FORMAT,
        "log_id": manifest.log_id.hex(),
        "window": manifest.window,
        "next": manifest.next,
        "epoch": manifest.epoch,
        "token": manifest.token.hex(),
        "end": _pack_end(manifest.end),
        "segments": [_pack_segment(each) for each in manifest.segments],
        "base": _pack_segment(manifest.base) if manifest.base is not None else None,
    }
    content["crc"] = crc32c(_text(content))
    return _text(content)


def unpack_manifest(data: bytes) -> Manifest:
    """CorruptData where these bytes are not what was written; UnknownFormat where a later version wrote them."""
    try:
        content = json.loads(data)
        crc = content.pop("crc")
        version = content["format"]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptData(f"the log's trim object cannot be read: {error!r}; put it back from a copy") from error
    if crc != crc32c(_text(content)):
        raise CorruptData("the log's trim object does not match its checksum: put it back from a copy")
    if version != FORMAT:
        raise UnknownFormat("the log's trim object was written by a later version: read it with that", format=version)
    return Manifest(
        log_id=bytes.fromhex(content["log_id"]),
        window=content["window"],
        next=content["next"],
        epoch=content["epoch"],
        token=bytes.fromhex(content["token"]),
        end=_unpack_end(content["end"]),
        segments=tuple(_unpack_segment(each) for each in content["segments"]),
        base=_unpack_segment(content["base"]) if content["base"] is not None else None,
    )


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _pack_end(end: ChainEnd) -> list[int]:
    return [end.next_lsn, end.chain, end.epoch, end.append_time_us]


def _unpack_end(content: list[int]) -> ChainEnd:
    return ChainEnd(*content)


def _pack_segment(segment: KeptSegment) -> dict[str, Any]:
    return {
        "first_lsn": segment.first_lsn,
        "generation": segment.generation,
        "size": segment.size,
        "created_us": segment.created_us,
        "end": _pack_end(segment.end),
        "opening": base64.b64encode(segment.opening).decode(),
        "slots": [list(each) for each in segment.slots],
        "fences": list(segment.fences),
    }


def _unpack_segment(content: dict[str, Any]) -> KeptSegment:
    return KeptSegment(
        first_lsn=content["first_lsn"],
        generation=content["generation"],
        size=content["size"],
        created_us=content["created_us"],
        end=_unpack_end(content["end"]),
        opening=base64.b64decode(content["opening"]),
        slots=tuple((slot, size) for slot, size in content["slots"]),
        fences=tuple(content["fences"]),
    )
