"""`trim` as bytes: all of it comes back, and what was changed is refused."""

from __future__ import annotations

import json

import pytest

from headwater.errors import CorruptData, UnknownFormat
from headwater.frames.checksum import crc32c
from headwater.log.chain import ChainEnd
from headwater.log.manifest import KeptSegment, Manifest, pack_manifest, unpack_manifest

IN_SLOTS = KeptSegment(1, 0, 900, 5, ChainEnd(9, 77, 2, 6), bytes(256), ((1, 512), (9, 900)), (1,))
MERGED = KeptSegment(9, 2, 5000, 7, ChainEnd(12, (1 << 64) - 1, 3, 8), b"\xff" * 256)
FULL = Manifest(bytes(range(16)), 8, 17, 3, b"t" * 16, (IN_SLOTS, MERGED), None, MERGED.end)


@pytest.mark.parametrize("manifest", [FULL, Manifest(bytes(16), 1), Manifest(bytes(16), 1, base=IN_SLOTS)])
def test_a_trim_comes_back_from_its_bytes(manifest: Manifest) -> None:
    data = pack_manifest(manifest)

    assert unpack_manifest(data) == manifest
    assert pack_manifest(unpack_manifest(data)) == data


def test_a_new_log_begins_at_slot_1_and_lsn_1_and_is_nobodys() -> None:
    new = Manifest(bytes(16), 8)

    assert (new.next, new.epoch, new.token, new.segments, new.end) == (1, 0, b"", (), ChainEnd(1, 0, 0, 0))


def test_an_owner_changes_the_epoch_and_the_token_and_nothing_else() -> None:
    owned = FULL.owned_by(4, b"u" * 16)

    assert (owned.epoch, owned.token) == (4, b"u" * 16)
    assert owned.owned_by(FULL.epoch, FULL.token) == FULL


def test_a_kept_segment_knows_its_last_lsn() -> None:
    assert (IN_SLOTS.last_lsn, MERGED.last_lsn) == (8, 11)


def test_every_flipped_bit_of_a_trim_is_noticed() -> None:
    data = pack_manifest(Manifest(bytes(range(16)), 8, 17, 3, b"t" * 16))

    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptData):
            unpack_manifest(bytes(changed))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"{}", b'{"crc":1}', pack_manifest(FULL)[:-1], b"\xff\xfe"])
def test_what_is_no_trim_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptData, match="trim object"):
        unpack_manifest(data)


def test_a_later_versions_trim_is_refused_by_name() -> None:
    content = json.loads(pack_manifest(FULL))
    del content["crc"]
    content["format"] = 2
    content["crc"] = crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

    with pytest.raises(UnknownFormat, match="later version"):
        unpack_manifest(json.dumps(content).encode())
