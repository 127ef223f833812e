"""A stored body gives back the body that was given, or an error: never other bytes, and never too many."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import cast

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptData
from headwater.frames.codecs import decode_body, encode_body
from headwater.frames.frame import BODY_SIZE_BYTES_MAX, Codec

RAW = b"the same words again, " * 50


def zstd_body(raw_size: int, compressed: bytes) -> memoryview:
    return memoryview(struct.pack("<I", raw_size) + compressed)


def compressed(raw: bytes) -> bytes:
    packed: bytes = pyarrow.compress(raw, codec="zstd", asbytes=True)
    return packed


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_without_a_codec_the_body_is_the_very_one_that_was_given(kind: type) -> None:
    raw = kind(RAW)

    stored = encode_body(Codec.NONE, raw)

    assert stored is raw
    view = memoryview(stored)
    assert decode_body(Codec.NONE, view) is view


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_zstd_body_is_the_raw_size_and_a_zstd_frame(kind: type) -> None:
    stored = bytes(encode_body(Codec.ZSTD, kind(RAW)))

    assert stored[:4] == struct.pack("<I", len(RAW))
    assert stored[4:8] == bytes.fromhex("28b52ffd")
    assert len(stored) < len(RAW) // 2


@given(raw=st.binary(max_size=2000))
@pytest.mark.parametrize("codec", list(Codec))
def test_what_was_encoded_is_what_is_decoded(codec: Codec, raw: bytes) -> None:
    stored = encode_body(codec, raw)

    decoded = decode_body(int(codec), memoryview(stored))

    assert bytes(decoded) == raw


def test_the_codec_of_a_header_is_a_plain_number_and_means_the_same() -> None:
    stored = encode_body(cast(Codec, 0), RAW)

    assert stored == RAW
    assert decode_body(0, memoryview(RAW)) == RAW


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_zstd_body_without_its_raw_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptData, match="without its raw size") as error:
        decode_body(Codec.ZSTD, memoryview(bytes(size)))

    assert error.value.facts == {"stored_bytes": size}


def test_a_small_body_that_claims_to_be_above_the_limit_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyarrow, "decompress", lambda *_, **__: pytest.fail("it was unpacked"))

    with pytest.raises(CorruptData, match="above the limit"):
        decode_body(Codec.ZSTD, zstd_body(BODY_SIZE_BYTES_MAX + 1, compressed(RAW)))
    with pytest.raises(CorruptData, match="above the limit"):
        decode_body(Codec.ZSTD, zstd_body(2**32 - 1, compressed(RAW)))


def test_a_body_of_exactly_the_limit_is_unpacked() -> None:
    raw = bytes(BODY_SIZE_BYTES_MAX)

    stored = encode_body(Codec.ZSTD, raw)

    assert len(stored) < 16 * 1024
    assert decode_body(Codec.ZSTD, memoryview(stored)) == raw


@pytest.mark.parametrize("claimed", [0, 1, len(RAW) - 1, len(RAW) + 1, 2 * len(RAW), BODY_SIZE_BYTES_MAX])
def test_a_zstd_body_of_another_size_than_it_says_is_corrupt(claimed: int) -> None:
    with pytest.raises(CorruptData):
        decode_body(Codec.ZSTD, zstd_body(claimed, compressed(RAW)))


@pytest.mark.parametrize(
    "content",
    [b"", b"not zstd at all", compressed(RAW)[:-1], compressed(RAW) + b"x", b"\0" + compressed(RAW)[1:]],
    ids=["nothing", "other bytes", "cut", "more", "no magic"],
)
def test_bytes_that_do_not_unpack_are_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptData, match="does not unpack") as error:
        decode_body(Codec.ZSTD, zstd_body(len(RAW), content))

    assert error.value.__cause__ is not None


def test_a_library_that_gives_back_another_size_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyarrow, "decompress", lambda *_, **__: RAW[:-1])

    with pytest.raises(CorruptData, match="another size") as error:
        decode_body(Codec.ZSTD, zstd_body(len(RAW), compressed(RAW)))

    assert error.value.facts == {"raw_bytes": len(RAW), "got": len(RAW) - 1}


def test_bodies_without_a_codec_need_no_pyarrow() -> None:
    program = (
        "import sys; from headwater.frames.codecs import Codec, decode_body, encode_body; "
        "decode_body(0, memoryview(encode_body(Codec.NONE, b'x'))); sys.exit('pyarrow' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == 0
