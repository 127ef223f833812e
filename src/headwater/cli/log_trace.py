"""`headwater log trace DATA TOPIC --partition P --offset N`: where a row is, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.data_directory import AsJson, CatalogOption, Data, open_topics
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, lsn_range, printable, results, say, utc_text
from headwater.cli.topic_lookup import topic_named
from headwater.cli.topic_show import Name

if TYPE_CHECKING:
    from headwater.lake.tracing import LandingPlace, RowTrace, Sender

COMMAND = "log trace"
LABEL_WIDTH = 12

Partition = Annotated[int, typer.Option("--partition", min=0, metavar="P", help="Its partition.", show_default=False)]
Offset = Annotated[
    int, typer.Option("--offset", min=0, metavar="N", help="Its offset: `_hw_offset`.", show_default=False)
]


def trace(
    data: Data,
    topic: Name,
    partition: Partition,
    offset: Offset,
    catalog: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Follow a row back: data file, landing, segment and position, write, producer and sequence.

    It may run beside the log's owner. What the log has let go of, and what has not landed, is said.

    Exit code 0: told. 2: there is no such row, or another call is needed. 75: the table cannot be read now.
    """
    with exit_codes(as_json=as_json, command=COMMAND), open_topics(data, catalog=catalog) as log:
        found = log.trace(topic_named(log, topic).name, partition=partition, offset=offset)
        if as_json:
            emit_json(COMMAND, _as_content(found))
            return
        console = results()
        say(console, f"{found.topic} partition {found.partition} offset {found.offset}")
        for label, text in _lines(found):
            say(console, printable(text), first=f"  {label:<{LABEL_WIDTH}}", indent=" " * (LABEL_WIDTH + 2))


def _as_content(found: RowTrace) -> dict[str, object]:
    content: dict[str, Any] = {**asdict(found), "lsn": found.lsn}
    for part in ("file", "landing"):
        if content[part] is not None:
            # As everywhere: it is larger than what a program may take for a number.
            content[part]["snapshot"] = str(content[part]["snapshot"])
    return content


def _lines(found: RowTrace) -> Iterator[tuple[str, str]]:
    if found.file is not None:
        yield "data file", f"{found.file.path}, row group {found.file.row_group}, row {found.file.row}"
    if found.landing is not None:
        yield "landing", _landing(found.landing)
    if found.log is not None:
        frame = found.log
        yield "segment", f"{frame.segment}, position {frame.position}"
        yield (
            "frame",
            f"LSN {frame.lsn}, offsets {lsn_range(frame.first_offset, frame.first_offset + frame.offsets - 1)}, "
            f"{counted(frame.rows, 'row')}, schema version {frame.schema_version}, epoch {frame.epoch}, appended "
            f"{utc_text(frame.time_us)}",
        )
    if found.write is not None:
        kind = "transaction" if found.write.transaction else "write"
        lsns = lsn_range(found.write.first_lsn, found.write.lsn)
        yield kind, f"LSN {lsns}, {counted(found.write.frames, 'frame')}"
        yield "sender", _sender(found.sender)
    for note in found.notes:
        yield "note", note


def _landing(landing: LandingPlace) -> str:
    how = "taken over from a lost log" if landing.restored else f"commit {landing.commit_id}"
    verified = (
        f"verified {utc_text(landing.verified_us)} ({landing.verified_by})"
        if landing.verified_us is not None
        else "not verified yet"
    )
    return (
        f"{landing.table} snapshot {landing.snapshot}, {how}, LSN {landing.lsn_from + 1} to {landing.lsn_to}, "
        f"{counted(landing.rows, 'row')}, {utc_text(landing.landed_us)}, {verified}"
    )


def _sender(sender: Sender | None) -> str:
    if sender is None:
        return "not told: no producer, no idempotency key"
    parts = []
    if sender.producer_id:
        name = f"{sender.producer} (id {sender.producer_id})" if sender.producer else f"id {sender.producer_id}"
        parts.append(f"producer {name}, epoch {sender.epoch}, sequence {sender.sequence}")
    if sender.key_hash:
        parts.append(f"idempotency key with hash {sender.key_hash}")
    return "; ".join(parts)
