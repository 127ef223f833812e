"""What `append` is given: files, compressed files, pipes; blocks of whole lines, and never more than that in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.cli import input_source, parquet_input
from headwater.cli.input_source import Source, last_newline
from headwater.cli.row_input import InputFormat, chunks, format_of
from headwater.cli.schema_text import parse_schema
from headwater.errors import InvalidRequest, TooLarge


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    with path.open("rb") as file:
        yield Source(file)


@contextmanager
def piped() -> Iterator[tuple[Source, IO[bytes]]]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as out_of, os.fdopen(writer, "wb", buffering=0) as into:
        yield Source(out_of), into


def test_blocks_are_whole_lines_with_the_number_of_their_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "BLOCK_BYTES", 5)

    found = list(Source(io.BytesIO(b"a\nbb\nccccccc\nd")).blocks(last_newline))

    assert [(block.data, block.first_line) for block in found] == [(b"a\nbb\n", 1), (b"ccccccc\n", 3), (b"d", 4)]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "BLOCK_BYTES", 8)
    monkeypatch.setattr(input_source, "LINE_BYTES_MAX", 16)

    with pytest.raises(TooLarge) as refused:
        list(Source(io.BytesIO(b"a\n" + b"x" * 100)).blocks(last_newline))

    assert "line 2" in str(refused.value)


def test_what_a_pipe_has_given_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "LINGER_S", 0.0)
    with piped() as (source, into):
        into.write(b"one\n")
        blocks = source.blocks(last_newline)

        first = next(blocks)
        into.write(b"two\nthr")
        second = next(blocks)
        into.write(b"ee\n")
        into.close()
        rest = list(blocks)

    assert [each.data for each in (first, second, *rest)] == [b"one\n", b"two\n", b"three\n"]
    assert source.size_bytes is None and source.done_bytes == 14


def test_small_writes_of_a_pipe_become_one_block() -> None:
    with piped() as (source, into):
        for _ in range(100):
            into.write(b"a line\n")
        into.close()

        assert source.read_some() == b"a line\n" * 100
        assert source.read_some() == b""


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_compressed_file_is_unpacked(tmp_path: Path, suffix: str, pack: object) -> None:
    path = tmp_path / f"rows.ndjson.{suffix}"
    path.write_bytes(pack(b'{"a":1}\n' * 1000))  # type: ignore[operator]

    with opened(path) as source:
        data = b"".join(block.data for block in source.blocks(last_newline))

        assert data == b'{"a":1}\n' * 1000
        assert source.done_bytes == source.size_bytes == path.stat().st_size
        assert format_of(source, None) is InputFormat.NDJSON


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson.gz"
    path.write_bytes(b'{"a":1}\n')

    with opened(path) as source, pytest.raises(InvalidRequest):
        source.read_some()


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("a.ndjson", InputFormat.NDJSON),
        ("a.JSONL", InputFormat.NDJSON),
        ("a.b.csv", InputFormat.CSV),
        ("a.csv.gz.zst", InputFormat.CSV),
        ("a.parquet", InputFormat.PARQUET),
    ],
)
def test_a_format_is_told_by_the_name(tmp_path: Path, name: str, format_: InputFormat) -> None:
    (tmp_path / name).touch()

    source = Source((tmp_path / name).open("rb"))

    assert format_of(source, None) is format_
    assert format_of(source, InputFormat.CSV) is InputFormat.CSV
    source.file.close()


@pytest.mark.parametrize("name", ["rows", "rows.gz", "rows.txt"])
def test_a_name_that_says_nothing_needs_a_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()

    with opened(tmp_path / name) as source, pytest.raises(InvalidRequest) as refused:
        format_of(source, None)

    assert "--format" in str(refused.value)


def test_a_pipe_gives_ndjson() -> None:
    assert format_of(Source(io.BytesIO(b"")), None) is InputFormat.NDJSON


def counts(source: Source, format_: InputFormat, batch_rows: int, skip_rows: int) -> list[tuple[int, int]]:
    found = chunks(source, format_, parse_schema("a:int64"), batch_rows=batch_rows, skip_rows=skip_rows, header=True)
    return [(chunk.first_row, chunk.count) for chunk in found]


@pytest.mark.parametrize(
    ("skip", "expected"), [(0, [(0, 2), (2, 2), (4, 1)]), (1, [(1, 2), (3, 2)]), (4, [(4, 1)]), (5, []), (9, [])]
)
def test_a_chunk_has_at_most_so_many_rows_and_the_first_can_be_left_out(
    tmp_path: Path, skip: int, expected: list[tuple[int, int]]
) -> None:
    table = pa.table({"a": range(5)})
    parquet.write_table(table, tmp_path / "rows.parquet")

    with opened(tmp_path / "rows.parquet") as source:
        of_parquet = counts(source, InputFormat.PARQUET, 2, skip)

    assert counts(Source(io.BytesIO(b'{"a":1}\n' * 5)), InputFormat.NDJSON, 2, skip) == expected
    assert counts(Source(io.BytesIO(b"a\n" + b"1\n" * 5)), InputFormat.CSV, 2, skip) == expected
    assert [each for each in of_parquet if each[1]] == [(first, count) for first, count in of_parquet if first >= skip]
    assert sum(count for _, count in of_parquet) == max(5 - skip, 0)


def test_a_batch_of_parquet_that_no_write_would_hold_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_input, "CHUNK_BYTES_MAX", 30)
    parquet.write_table(pa.table({"a": range(5)}), tmp_path / "rows.parquet")

    with opened(tmp_path / "rows.parquet") as source:
        found = [chunk.rows.to_pydict()["a"] for chunk in parquet_input.read_chunks(source, 100)]  # type: ignore[union-attr]

    assert found == [[0, 1], [2, 3, 4]]


def test_parquet_through_a_pipe_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        list(parquet_input.read_chunks(Source(io.BytesIO(b"PAR1")), 10))


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"not at all")

    with opened(tmp_path / "rows.parquet") as source, pytest.raises(InvalidRequest) as refused:
        list(parquet_input.read_chunks(source, 10))

    assert "is not a Parquet file" in str(refused.value)
