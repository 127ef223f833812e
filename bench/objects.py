"""What does a log on an object store cost beside bare conditional puts, and what does it ask of the store?

RATE      1,000 rows of 1 KB as a record batch an append, from 8 threads, against bare conditional puts of the same
          bytes from 8 threads; then one row an append from 8 and from 64 threads, against bare puts of such a row.
          One server for all, in turn; ratios are within a round.  What fails here as a bug of a thread fails the bench.
FAR       The same with 40 ms more for each request, about as far as a bucket is: batches of 1 MB from 8 threads
          beside bare puts that are as far, single rows from 64, the first row after opening, a log taken over.
LATENCY   One append at a time and one bare put at a time, in turn.
LANDING   The same rows landed by processes of this machine from a bucket and from a disk, in turn; tables and catalog
          are on the disk for both.
REQUESTS  What the store was asked for is counted and compared with what bench/_store_model.py says, in two spells: one
          without a roll, in which nothing but slots and leases may be asked for, and one with rolls.
SMALL     Rows one by one, sealed and merged: objects before and after, bytes written twice.
OPENING   From `open` to the first row of a log of many segments.
TAKEOVER  From the death of an owner to the next one's first acknowledged row: by itself, and with `take_over`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import headwater as hw
from bench._engines import engine_of
from bench._kilobyte_rows import ROWS, SCHEMA
from bench._kilobyte_rows import thousand_rows as wide_batch
from bench._lake import SCHEMA as LANDED_SCHEMA
from bench._lake import batch_of
from bench._place import GIB, MIB, machine, median, percentile, place
from bench._store import WINDOW, BucketLog, Store, bucket_log, from_threads, in_turn, store
from bench._store_model import VERBS, Spell, expected, unexplained
from bench.report import Report, at_least, at_most
from headwater.lake.runner import LocalProcesses
from headwater.settings import LogSettings, Settings
from headwater.storage.objects import StoreCounters

MANY_THREADS = 64
SMALL_SEGMENT_BYTES = 4 * MIB
FAR_S = 0.04
SETTLED_S = 1.5
"""After so long the owner's other threads have done what there was to do."""


def run(quick: bool) -> Report:
    rounds = 3 if quick else 9
    appends = 8 if quick else 16
    singles = 20 if quick else 100
    landed_rows = 700_000 if quick else 1_500_000
    figures: dict[str, float] = {}
    with place((4 if quick else 16) * GIB) as directory, store(directory / "store") as server:
        large, small = _rates(server, rounds, appends, singles, figures)
        far = _far(server, 3 if quick else 7, appends, figures)
        _latency(server, 100 if quick else 400, figures)
        landing = _landing(server, directory, landed_rows, 2 if quick else 5, figures)
        hot, off_model = _requests(server, 32 if quick else 128, figures)
        left = _small_objects(server, 200 if quick else 2_000, figures)
        _opening(server, 16 if quick else 64, figures)
        _takeover(server, 1 if quick else 5, figures)
    return Report(
        bench="objects",
        settings={
            "server": "versitygw on loopback, objects on the same disk",
            "window": WINDOW,
            "rounds": rounds,
            "appends_a_thread": appends,
            "single_appends_a_thread": singles,
            "batch_bytes": wide_batch(0).nbytes,
            "landed_rows": landed_rows,
            **machine(),
        },
        figures=figures,
        bars=(
            at_least("1 MB appends from 8 threads, share of bare conditional puts (median of rounds)", large, 0.7),
            at_least("single rows from 8 threads, share of bare conditional puts (median of rounds)", small, 0.7),
            at_least("1 MB appends from 8 threads, 40 ms away, share of bare puts as far (median of rounds)", far, 0.7),
            at_least("landing from the bucket, share of landing from disk (median of rounds)", landing, 0.9),
            at_most("LIST, GET and DELETE requests while rows were appended and nothing rolled", hot, 0),
            at_most("requests that the model does not explain", off_model, 0),
            at_most("objects left of rows appended one by one, share of slots written", left, 0.05),
        ),
    )


# Rate -------------------------------------------------------------------------------------------------------------


def _rates(server: Store, rounds: int, appends: int, singles: int, figures: dict[str, float]) -> tuple[float, float]:
    """The median shares of bare puts: of batches, and of single rows."""
    batches = [wide_batch(seed) for seed in range(4)]
    bodies = [batch.serialize().to_pybytes() for batch in batches]
    row = batches[0].slice(0, 1)
    row_body = row.serialize().to_pybytes()
    names = iter(range(1 << 60))
    bare = server.bare("bare")
    with bucket_log(server, "rate") as own:
        topic = own.log.topic("events", schema=SCHEMA)
        cpu = [0.0, 0.0]

        def ours() -> float:
            began = time.process_time()
            seconds = from_threads(WINDOW, appends, lambda number: _append(topic, batches[number % 4]))
            cpu[0] += time.process_time() - began
            cpu[1] += WINDOW * appends * len(bodies[0])
            return seconds

        def theirs() -> float:
            return from_threads(WINDOW, appends, lambda number: bare.put(f"l{next(names)}", bodies[number % 4]))

        def our_rows() -> float:
            return from_threads(WINDOW, singles, lambda number: _append(topic, row))

        def their_rows() -> float:
            return from_threads(WINDOW, singles, lambda number: bare.put(f"s{next(names)}", row_body))

        large = in_turn((ours, theirs), rounds)
        figures["owner_cpu_s_per_gb"] = cpu[0] / cpu[1] * 1e9
        small = in_turn((our_rows, their_rows), rounds)
        many_s = from_threads(MANY_THREADS, singles, lambda number: _append(topic, row))
    size = WINDOW * appends * len(bodies[0])
    _tell_pairs("batches_1mb", large, WINDOW * appends, figures)
    figures["batches_1mb_ours_mb_per_s"] = size / median([each[0] for each in large]) / 1e6
    figures["batches_1mb_bare_mb_per_s"] = size / median([each[1] for each in large]) / 1e6
    _tell_pairs("rows_8_threads", small, WINDOW * singles, figures)
    figures["rows_64_threads_per_s"] = MANY_THREADS * singles / many_s
    return figures["batches_1mb_ratio"], figures["rows_8_threads_ratio"]


def _append(topic: hw.Topic, rows: object) -> None:
    topic.append(rows)


def _tell_pairs(name: str, pairs: list[list[float]], count: int, figures: dict[str, float]) -> None:
    ratios = [theirs / ours for ours, theirs in pairs]
    figures[f"{name}_ratio"] = median(ratios)
    figures[f"{name}_ratio_lowest"], figures[f"{name}_ratio_highest"] = min(ratios), max(ratios)
    figures[f"{name}_ours_per_s"] = count / median([each[0] for each in pairs])
    figures[f"{name}_bare_per_s"] = count / median([each[1] for each in pairs])


def _latency(server: Store, count: int, figures: dict[str, float]) -> None:
    batch = wide_batch(9)
    bare = server.bare("bare-latency")
    with bucket_log(server, "latency") as own:
        topic = own.log.topic("events", schema=SCHEMA)
        for name, rows, some in (("row", batch.slice(0, 1), count), ("1mb", batch, count // 4)):
            body = rows.serialize().to_pybytes()
            ours: list[float] = []
            theirs: list[float] = []
            for number in range(some + 10):
                begun = time.perf_counter()
                topic.append(rows)
                between = time.perf_counter()
                bare.put(f"{name}{number}", body)
                if number >= 10:
                    ours.append((between - begun) * 1000)
                    theirs.append((time.perf_counter() - between) * 1000)
            for share, text in ((0.5, "p50"), (0.99, "p99")):
                figures[f"append_{name}_{text}_ms"] = percentile(ours, share)
                figures[f"bare_put_{name}_{text}_ms"] = percentile(theirs, share)


def _far(server: Store, rounds: int, appends: int, figures: dict[str, float]) -> float:
    """The share of bare puts, where each of both has a long way."""
    batches = [wide_batch(seed) for seed in range(4)]
    bodies = [batch.serialize().to_pybytes() for batch in batches]
    names = iter(range(1 << 60))
    bare = server.bare("bare-far")

    def far_put(number: int) -> None:
        time.sleep(FAR_S)
        bare.put(f"l{next(names)}", bodies[number % 4])

    with bucket_log(server, "far", far_s=FAR_S) as own:
        topic = own.log.topic("events", schema=SCHEMA)
        pairs = in_turn(
            (
                lambda: from_threads(WINDOW, appends, lambda number: _append(topic, batches[number % 4])),
                lambda: from_threads(WINDOW, appends, far_put),
            ),
            rounds,
        )
        row = batches[0].slice(0, 1)
        commits = engine_of(own.log).shard.log.counters.commits
        seconds = from_threads(MANY_THREADS, appends, lambda number: _append(topic, row))
        figures["far_rows_64_threads_per_s"] = MANY_THREADS * appends / seconds
        figures["far_commits_per_s_of_rows"] = (engine_of(own.log).shard.log.counters.commits - commits) / seconds
        alone = []
        for _ in range(20):
            begun = time.perf_counter()
            topic.append(row)
            alone.append((time.perf_counter() - begun) * 1000)
        figures["far_append_row_p50_ms"] = percentile(alone, 0.5)
        begun = time.perf_counter()
        with bucket_log(server, "far", far_s=FAR_S) as reader:
            assert next(iter(reader.log["events"].read(limit=1))).num_rows == 1
            figures["far_opening_first_row_ms"] = (time.perf_counter() - begun) * 1000
        begun = time.perf_counter()
        with bucket_log(server, "far", far_s=FAR_S, take_over=True) as heir:
            heir.log["events"].append(row)
            figures["far_takeover_asked_for_s"] = time.perf_counter() - begun
    size = WINDOW * appends * len(bodies[0])
    _tell_pairs("far_batches_1mb", pairs, WINDOW * appends, figures)
    figures["far_batches_1mb_ours_mb_per_s"] = size / median([each[0] for each in pairs]) / 1e6
    return figures["far_batches_1mb_ratio"]


# Landing ----------------------------------------------------------------------------------------------------------


def _landing(server: Store, directory: Path, rows: int, rounds: int, figures: dict[str, float]) -> float:
    """Landing from the bucket, as a share of landing from disk.  The first round starts the processes, and is not
    counted."""
    shares: list[float] = []
    rates: list[tuple[float, float]] = []
    places = (server.url("landing"), str(directory / "landing"))
    logs = [hw.open(where, catalog=_catalog(directory / f"lake{side}")) for side, where in enumerate(places)]
    with closing(logs[0]), closing(logs[1]), closing(LocalProcesses(in_process_bytes_max=0)) as runner:
        for number in range(rounds + 1):
            name = f"t{number}"
            size = 0
            for log in logs:
                topic = log.topic(name, schema=LANDED_SCHEMA, table=f"bench.{name}")
                size = 0
                for first in range(0, rows, 10_000):
                    batch = batch_of(first, min(10_000, rows - first))
                    size += batch.nbytes
                    topic.append(batch)
            seconds = [0.0, 0.0]
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                seconds[side], table_bytes = _land(logs[side], name, runner, rows)
                figures["landing_table_bytes_per_byte"] = table_bytes / size
            if number:
                shares.append(seconds[1] / seconds[0])
                rates.append((size / seconds[0] / 1e6, size / seconds[1] / 1e6))
    figures["landing_ratio_lowest"], figures["landing_ratio_highest"] = min(shares), max(shares)
    figures["landing_from_bucket_mb_per_s"] = median([each[0] for each in rates])
    figures["landing_from_disk_mb_per_s"] = median([each[1] for each in rates])
    return median(shares)


def _catalog(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {"name": "lake", "type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}"}


def _land(log: hw.Log, topic: str, runner: LocalProcesses, rows: int) -> tuple[float, int]:
    """The seconds of a landing without its reading back, and the bytes of the files that it wrote."""
    assert log._lake is not None
    report = log._lake.land(log._viewed().source, topic, runner=runner, verify="metadata")
    assert report.rows == rows, report
    return report.seconds - report.verify_s, report.topics[0].bytes


# Requests ---------------------------------------------------------------------------------------------------------


def _requests(server: Store, appends: int, figures: dict[str, float]) -> tuple[float, float]:
    """Requests that the hot path must not have made; and requests that the model does not explain."""
    batch, row = wide_batch(3), wide_batch(3).slice(0, 1)
    log_settings = LogSettings(segment_size_bytes_max=SMALL_SEGMENT_BYTES, write_body_bytes_max=SMALL_SEGMENT_BYTES)
    off = hot = 0.0
    # Slots of 1 MB stay as they are; single rows are merged.
    for name, rows, count in (("large", batch, appends), ("small", row, appends * 40)):
        with bucket_log(server, f"quiet-{name}", Settings(upkeep_interval_s=3600)) as own:
            topic = own.log.topic("events", schema=SCHEMA)
            topic.append(rows)
            quiet = _spell(own, topic, rows, 32)
        with bucket_log(server, f"rolls-{name}", Settings(log=log_settings, upkeep_interval_s=0)) as own:
            topic = own.log.topic("events", schema=SCHEMA)
            # The claim, and as many checkpoints as are kept, are not what is asked about.
            for _ in range(3):
                topic.append(row)
                own.log.checkpoint()
            rolled = _spell(own, topic, rows, count)
        hot += quiet.asked.lists + quiet.asked.gets + quiet.asked.deletes
        for spell_name, spell in ((f"{name}_quiet", quiet), (f"{name}_rolls", rolled)):
            model = expected(spell)
            for verb in VERBS:
                figures[f"requests_{spell_name}_{verb}"] = getattr(spell.asked, verb)
                figures[f"requests_{spell_name}_{verb}_model"] = getattr(model, verb)[0]
            off += unexplained(spell)
        figures[f"requests_{name}_rolls"] = rolled.rolls
        figures[f"requests_{name}_per_commit"] = (rolled.asked.puts + rolled.asked.gets) / rolled.commits
    return hot, off


def _spell(own: BucketLog, topic: hw.Topic, rows: object, appends: int) -> Spell:
    """Append so often, and wait until what was sealed by it has been taken in."""
    log = engine_of(own.log).shard.log
    time.sleep(SETTLED_S)
    before, begun = own.counted(), time.perf_counter()
    commits, rolls, slots = log.counters.commits, log.counters.rolls, own.slots()
    for _ in range(appends):
        topic.append(rows)
    after = _rested(own)
    asked = {name: value - getattr(before, name) for name, value in after.as_dict().items()}
    committed = log.counters.commits - commits
    return Spell(
        asked=StoreCounters(**asked),
        commits=committed,
        rolls=log.counters.rolls - rolls,
        fences=1 if log.counters.rolls > rolls == 0 else 0,
        slots_gone=slots + committed - own.slots(),
        slot_bytes=asked["bytes_put"] / committed,
        seconds=time.perf_counter() - begun,
    )


def _rested(own: BucketLog) -> StoreCounters:
    """What was asked for once nothing but the lease is asked for any more."""
    while True:
        before = own.counted()
        time.sleep(SETTLED_S)
        after = own.counted()
        if (before.gets, before.lists, before.deletes) == (after.gets, after.lists, after.deletes):
            return after


def _small_objects(server: Store, rows: int, figures: dict[str, float]) -> float:
    """The share of the objects that rows wrote, one by one, which is left once they were merged."""
    row = wide_batch(5).slice(0, 1)
    with bucket_log(server, "small", Settings(upkeep_interval_s=0)) as own:
        topic = own.log.topic("events", schema=SCHEMA)
        topic.append(row)
        before, begun = own.counted(), time.perf_counter()
        for _ in range(rows):
            topic.append(row)
        figures["small_rows_per_s"] = rows / (time.perf_counter() - begun)
        engine_of(own.log).shard.log.roll()
        begun = time.perf_counter()
        left = _settled(server, "small/log")
        after = own.counted()
        assert topic.read().to_arrow().num_rows == rows + 1
    figures["small_slots_written"] = rows
    figures["small_objects_left"] = left
    figures["small_merged_after_s"] = time.perf_counter() - begun
    figures["small_requests_per_row"] = (after.puts + after.gets + after.lists - before.puts - before.gets) / rows
    merged = sum(size for name, size in server.objects_below("small/log").items() if name.endswith(".seg"))
    figures["small_bytes_written_twice_share"] = merged / (after.bytes_put - before.bytes_put - merged)
    return left / rows


def _settled(server: Store, prefix: str) -> int:
    """How many objects there are once there have been as many for a while."""
    seen = [-1] * 10
    while len(set(seen[-10:])) > 1 or seen[-1] < 0:
        time.sleep(0.1)
        seen.append(len(server.objects_below(prefix)))
        assert len(seen) < 600, "objects come and go for a minute"
    return seen[-1]


# Opening and taking over ------------------------------------------------------------------------------------------


def _opening(server: Store, segments: int, figures: dict[str, float]) -> None:
    """Rows of 1 MB in segments of 4 MiB; the last one is still in slots."""
    log_settings = LogSettings(segment_size_bytes_max=SMALL_SEGMENT_BYTES, write_body_bytes_max=SMALL_SEGMENT_BYTES)
    settings = Settings(log=log_settings)
    batch = wide_batch(7)
    with bucket_log(server, "opening", settings) as own:
        topic = own.log.topic("events", schema=SCHEMA)
        for _ in range(segments * 4):
            topic.append(batch)
        time.sleep(1.0)
    times: list[float] = []
    asked = 0
    for _ in range(5):
        begun = time.perf_counter()
        with bucket_log(server, "opening") as own:
            first = next(iter(own.log["events"].read(limit=ROWS)))
            times.append(time.perf_counter() - begun)
            assert first.num_rows > 0
            counted = own.counted()
            asked = counted.gets + counted.lists + counted.puts
    figures["opening_segments"] = segments
    figures["trim_bytes_per_segment"] = server.objects_below("opening/log")["trim"] / segments
    figures["opening_first_row_ms"] = median(times) * 1000
    figures["opening_requests"] = asked


def _takeover(server: Store, rounds: int, figures: dict[str, float]) -> None:
    waited: list[float] = []
    at_once: list[float] = []
    for number in range(rounds):
        for take_over, times in ((False, waited), (True, at_once)):
            url = server.url(f"takeover{number}{take_over}")
            with subprocess.Popen(
                [sys.executable, "-m", "bench._owner", url], stdout=subprocess.PIPE, text=True
            ) as owner:
                assert owner.stdout is not None
                acknowledged = [int(owner.stdout.readline()) for _ in range(50)]
                owner.kill()
                acknowledged += [int(line) for line in owner.stdout if line.endswith("\n")]
            begun = time.perf_counter()
            with hw.open(url, take_over=take_over) as log:
                log["events"].append({"number": -1})
                times.append(time.perf_counter() - begun)
                there = set(log["events"].read().to_arrow()["number"].to_pylist())
                assert there >= set(acknowledged)
    figures["takeover_of_a_dead_owner_s"] = median(waited)
    figures["takeover_asked_for_s"] = median(at_once)
