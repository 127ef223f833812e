"""Writes docs/benchmarks.md and its pictures from a recorded run.

    python -m bench.peers.page [RECORDED.json]        the newest of bench/peers/recorded unless one is named

PROMISE  The page says what the record says, and nothing that was typed beside it: figures, ranges, versions, date;
         where a peer does better comes of the comparisons that each part declares.  The same record gives the same
         bytes.  A figure that was not measured is shown as such, with the reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.peers import PARTS, part_named
from bench.peers._part import Compared, Part
from bench.peers._svg import Drawn, bars

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded"
PAGE = Path("docs/benchmarks.md")
PICTURES = Path("docs/pictures/benchmarks")
FAR_APART = 1.1
"""A difference smaller than this is called none: rounds differ by more."""

WITHOUT_FIGURES = """\
Some of what peers do better has no figure here, because Headwater does not do it at all:

- **Replication.** Kafka and JetStream keep copies of each row on several machines and go on when one dies. Headwater
  has one writer and one disk; if the machine is lost before rows landed, what was only on its disk is lost with it.
  Over an object store a standby takes over, and rows are as durable as the store, but each write takes as long as the
  store does.
- **Scale beyond one machine.** A topic of Kafka's is spread over brokers. A log of Headwater's is written by one
  process.
- **Clients.** Kafka and NATS have clients in every language that matters. Headwater has Python, and HTTP for
  all others.
- **Age.** Kafka and NATS have run in thousands of places for ten years and more. Headwater has not.
"""

Record = Mapping[str, Any]


def newest() -> Path:
    """The record whose name, which begins with its date, is the last."""
    found = sorted(RECORDED.glob("*.json"))
    if not found:
        raise SystemExit(f"nothing is recorded in {RECORDED.name}/: python -m bench peers --write FILE")
    return found[-1]


def pages(record: Record, name: str) -> dict[Path, str]:
    """By path below the repository's root, the text of the page and of each of its pictures."""
    parts = [part_named(part) for part in PARTS]
    made: dict[Path, str] = {}
    for part in parts:
        for number, _ in enumerate(part.charts):
            made[PICTURES / f"{part.name}-{number + 1}.svg"] = _picture(record, part, number)
    made[PAGE] = "\n".join(_lines(record, parts, name))
    return made


def _lines(record: Record, parts: list[Part], name: str) -> Iterator[str]:
    settings = record["settings"]
    yield "# Benchmarks: beside the field"
    yield ""
    yield (
        f"Headwater beside Kafka, NATS JetStream, Spark's streaming into Iceberg and pyiceberg: real software, started "
        f"by the bench, on the same machine with the same rows, taking turns. Recorded on {settings['date']}. "
        f"Figures are medians over rounds, with the lowest and the highest in brackets."
    )
    yield ""
    yield from _sizes(record, parts)
    yield (
        f"*Machine*: {settings['cpu']}, {settings['cores']} cores, {settings['memory_gib']} GiB, {settings['disk']} "
        f"(a bare write of 4 KiB and its sync: {number(settings['disk_sync_of_4_kib_p50_ms'])} ms), "
        f"{settings['kernel']}. Clients, servers and engines share its cores. Two cores are few: where a peer would "
        f"use eight, these figures do not say what it would do with them."
    )
    yield ""
    yield f"*Versions*: {_versions(settings)}."
    yield ""
    yield "## How to run it"
    yield ""
    yield "It needs Java 17, Maven and Go, which fetch and build the peers once, and the peers' clients."
    yield ""
    yield "*Not run here: it takes an hour and a half, and starts every peer.*"
    yield ""
    yield "```bash"
    yield "pip install -e '.[lake,spark,duckdb,server]' confluent-kafka aiokafka nats-py fastapi uvicorn"
    yield "python -m bench peers --quick                          # 20 minutes at most, smaller and noisier"
    yield f"python -m bench peers --write bench/peers/recorded/{name}"
    yield f"python -m bench.peers.page bench/peers/recorded/{name}  # this page"
    yield "```"
    yield ""
    yield "`--only PART` runs one part. Nothing is tuned on one side only: each has its defaults, and what differs from"
    yield "them is said in the part. A part that fails is shown as failed, and its figures as not measured."
    yield ""
    yield from _where_peers_do_better(record, parts)
    for part in parts:
        yield from _part_lines(record, part)


def _sizes(record: Record, parts: list[Part]) -> Iterator[str]:
    """Of what kind of run the figures are, unless all are of a full one."""
    by_size: dict[str, list[str]] = {}
    for part in parts:
        by_size.setdefault(_size(record, part), []).append(part.title)
    for size, titles in by_size.items():
        if size == "full":
            continue
        what = "a quick run: two rounds of most, at smaller sizes; a full one takes an hour and a half"
        if size != "quick":
            what = "no run that counts: they are noise, and show only that the bench works"
        which = "" if len(titles) == len(parts) else f" These are: {'; '.join(titles)}."
        yield f"**{'All' if not which else 'Some'} figures are of {what}.{which}**"
        yield ""


def _size(record: Record, part: Part) -> str:
    settings = record["settings"]
    return str(settings.get(f"{part.name}.size", settings["size"]))


def _versions(settings: Mapping[str, Any]) -> str:
    names = (
        "python", "kafka", "confluent-kafka", "nats-server", "nats-py", "pyspark", "iceberg", "pyiceberg", "pyarrow",
        "duckdb", "java",
    )  # fmt: skip
    return "; ".join(f"{name} {settings[name]}" for name in names if name in settings)


def _where_peers_do_better(record: Record, parts: list[Part]) -> Iterator[str]:
    yield "## Where a peer does better today"
    yield ""
    lost = [(part, each) for part in parts for each in part.compared if _peer_is_ahead(record, part, each)]
    if lost:
        yield "| what | Headwater | peer | how far | why |"
        yield "|---|---|---|---|---|"
        for part, each in lost:
            ours, theirs = (_shown(record, part, name) for name in (each.ours, each.theirs))
            yield f"| {each.what} | {ours} | {each.peer}: {theirs} | {_times(record, part, each)} | {each.why} |"
        yield ""
    yield WITHOUT_FIGURES


def _part_lines(record: Record, part: Part) -> Iterator[str]:
    yield f"## {part.title}"
    yield ""
    yield f"**{part.question}**"
    yield ""
    yield part.method
    yield ""
    failed = record["settings"].get(f"{part.name}.failed", "it was not run")
    if failed:
        yield f"**This part did not come to its end: {_cell(failed)}**"
        yield ""
    for number, chart in enumerate(part.charts):
        yield f"![{chart.title}](pictures/benchmarks/{part.name}-{number + 1}.svg)"
        yield ""
    if part.compared:
        yield "| compared | Headwater | peer | Headwater is |"
        yield "|---|---|---|---|"
        for each in part.compared:
            ours, theirs = (_shown(record, part, name) for name in (each.ours, each.theirs))
            yield f"| {each.what} | {ours} | {each.peer}: {theirs} | {_verdict(record, part, each)} |"
        yield ""
    if part.reading:
        yield part.reading
        yield ""
    yield "| figure | value | what it is |"
    yield "|---|---|---|"
    for figure in part.figures:
        yield f"| `{figure.name}` | {_shown(record, part, figure.name)} | {figure.says} |"
    yield ""
    said = {
        name.partition(".")[2]: value
        for name, value in record["settings"].items()
        if name.startswith(f"{part.name}.") and name != f"{part.name}.failed"
    }
    if said:
        yield "*Settings*: " + "; ".join(f"{name} = {_cell(str(value))}" for name, value in said.items()) + "."
        yield ""


# Figures ----------------------------------------------------------------------------------------------------------


def _value(record: Record, part: Part, name: str) -> float | None:
    value = record["figures"].get(f"{part.name}.{name}")
    return None if value is None else float(value)


def _shown(record: Record, part: Part, name: str) -> str:
    """The median with its unit, and the range where there is one."""
    value = _value(record, part, name)
    if value is None:
        return "not measured"
    unit = next(figure.unit for figure in part.figures if figure.name == name)
    low, high = _value(record, part, f"{name}_lowest"), _value(record, part, f"{name}_highest")
    ranged = f" ({number(low)} to {number(high)})" if low is not None and high is not None and low != high else ""
    return f"{number(value)} {unit}".strip() + ranged


def number(value: float) -> str:
    """Three digits that count, thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ahead(record: Record, part: Part, compared: Compared) -> float | None:
    """How many times as good as the peer's our figure is."""
    ours, theirs = _value(record, part, compared.ours), _value(record, part, compared.theirs)
    if not ours or not theirs:
        return None
    return ours / theirs if compared.better == "higher" else theirs / ours


def _peer_is_ahead(record: Record, part: Part, compared: Compared) -> bool:
    ahead = _ahead(record, part, compared)
    return ahead is not None and ahead < 1 / FAR_APART


def _times(record: Record, part: Part, compared: Compared) -> str:
    ahead = _ahead(record, part, compared)
    assert ahead is not None
    return f"{number(1 / ahead)} times"


def _verdict(record: Record, part: Part, compared: Compared) -> str:
    ahead = _ahead(record, part, compared)
    if ahead is None:
        return "not measured"
    if 1 / FAR_APART <= ahead <= FAR_APART:
        return "about the same"
    better = "ahead" if ahead > 1 else "**behind**"
    return f"{better}, {number(max(ahead, 1 / ahead))} times"


def _picture(record: Record, part: Part, at: int) -> str:
    chart = part.charts[at]
    drawn = [
        Drawn(
            label,
            _value(record, part, name),
            _value(record, part, f"{name}_lowest"),
            _value(record, part, f"{name}_highest"),
            "not measured" if (value := _value(record, part, name)) is None else f"{number(value)} {chart.unit}",
            ours=label.lower().startswith("headwater"),
        )
        for label, name in chart.bars
    ]
    return bars(chart.title, drawn)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else newest()
    record = json.loads(path.read_text(encoding="utf-8"))
    for relative, text in pages(record, path.name).items():
        target = ROOT / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        print(relative)


if __name__ == "__main__":
    main(sys.argv[1:])
