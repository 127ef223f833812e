"""The task: one function, bytes in and bytes out, that runs in this process, in a local one, or in Spark.

land        read the runs of a work once, and for each of its topics digest its rows and write its data files
read_back   read data files again, digest what they hold, and make them survive a power loss if they are on this disk

PROMISE  What a task gives back is true of files that are whole; rows are counted by the digest, which is of exactly the
         rows that were written, or read.
         A topic that fails has an `error`, and the others of the work are done all the same.  An attempt that is run
         twice, or given up half-way, leaves files that no commit names, never a wrong answer.
NOT HERE Where it runs: runner.py, headwater.spark.run.  What becomes of the files: lander.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from msgspec import structs

from headwater.clock import cpu_s
from headwater.errors import CorruptData
from headwater.lake.data_files import DataFileWriter, columns_of, read_data_file, read_rewritten_file
from headwater.lake.digest import combine, digest_of
from headwater.lake.local_sync import sync_local
from headwater.lake.reading import TopicRows, read_rows
from headwater.lake.work import (
    Digest,
    LandDone,
    LandWork,
    ReadBackDone,
    ReadBackWork,
    TopicDone,
    TopicWork,
    pack,
    unpack_work,
)


def perform(work: bytes, attempt: int) -> bytes:
    """Do a work.  `attempt` tells it from every other attempt, at this work or another, of the same landing."""
    given = unpack_work(work)
    return pack(land(given, attempt) if isinstance(given, LandWork) else read_back(given))


# --------------------------------------------------------------------------------------------------------- land


def land(work: LandWork, attempt: int) -> LandDone:
    spent = _Spent()
    errors: dict[int, str] = {}
    columns: dict[int, pa.Schema] = {}
    with spent.on("read"):
        for topic in work.topics:
            try:
                columns[topic.number] = columns_of(topic.target)
            except Exception as error:  # noqa: BLE001  a table that one topic cannot be written to is that topic's alone
                errors[topic.number] = _reason(error)
        readable = tuple(topic for topic in work.topics if topic.number in columns)
        read = read_rows(structs.replace(work, topics=readable), columns)
    errors.update(read.errors)
    done = []
    for topic in work.topics:
        if topic.number in errors:
            done.append(TopicDone(topic.number, error=errors[topic.number]))
            continue
        try:
            done.append(_land_topic(topic, read.topics.pop(topic.number), attempt, spent))
        except Exception as error:  # noqa: BLE001  pyiceberg and object stores raise anything, and the other topics go on
            done.append(TopicDone(topic.number, error=_reason(error)))
    return LandDone(tuple(done), read.bytes_read, spent.seconds)


def _land_topic(topic: TopicWork, read: TopicRows, attempt: int, spent: _Spent) -> TopicDone:
    if not read.rows.num_rows:
        return TopicDone(topic.number)
    with spent.on("digest"):
        digest = digest_of(read.rows)
    with spent.on("write"):
        files = DataFileWriter(topic.target, topic.commit_id, attempt).write(read.rows)
    assert sum(file.rows for file in files) == digest.rows == read.rows.num_rows
    return TopicDone(
        topic.number, tuple(files), digest, read.max_lsn, read.time_max_us, offsets=_offset_ranges(read.rows)
    )


def _offset_ranges(rows: pa.Table) -> tuple[tuple[int, int, int], ...]:
    """(partition, first offset, last offset), by partition."""
    found = rows.group_by("_hw_partition").aggregate([("_hw_offset", "min"), ("_hw_offset", "max")])
    columns = (found[name].to_pylist() for name in ("_hw_partition", "_hw_offset_min", "_hw_offset_max"))
    return tuple(sorted(zip(*columns, strict=True)))


class _Spent:
    """CPU seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        begun = cpu_s()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + cpu_s() - begun


# ---------------------------------------------------------------------------------------------------- read back


def read_back(work: ReadBackWork) -> ReadBackDone:
    """What the files hold now."""
    digests: list[Digest] = []
    for path in work.files:
        try:
            # Synced first: what is read after that is what a power loss leaves.
            sync_local([path])
            if work.between is None:
                parts = read_data_file(work.target, path)
            else:
                parts = read_rewritten_file(work.target, path, work.between)
            digests.extend(digest_of(rows) for rows in parts if rows.num_rows)
        except (FileNotFoundError, CorruptData, pa.ArrowInvalid) as error:
            return ReadBackDone(work.number, item=work.item, error=f"{path}: {_reason(error)}")
        except Exception as error:  # noqa: BLE001  whatever else keeps a file from being read, nobody has looked at it
            return ReadBackDone(work.number, item=work.item, unread=f"{path}: {_reason(error)}")
    return ReadBackDone(work.number, combine(digests), item=work.item)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
