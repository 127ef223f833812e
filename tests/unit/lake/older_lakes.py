"""A small lake whose log lets go of what has landed, and reads that begin before the log does.

lake = OlderLake(tmp_path)
lake.topic("orders"); lake.append("orders", 5); lake.round(); lake.let_go()
assert lake.read() == [0, 1, 2, 3, 4]           of the table; what is appended now, of the log
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.lake.older_rows import TablesOlderRows
from headwater.topics.reading import Rows
from tests.unit.lake.small_lakes import SETTINGS, SmallLake
from tests.unit.topics.small_engines import engine_of

QUICK = replace(SETTINGS, log=replace(SETTINGS.log, deletion_grace_s=0))


class OlderLake(SmallLake):
    def __init__(self, folder: Path, window_bytes: int | None = None) -> None:
        super().__init__(folder, QUICK)
        self.older = TablesOlderRows(self.connect, self.ledger, window_bytes=window_bytes)
        engine_of(self.log)._older = self.older

    def close(self) -> None:
        self.older.close()
        super().close()

    def roll(self) -> None:
        engine_of(self.log).shard.log.roll()

    def let_go(self) -> tuple[str, ...]:
        """The log lets go of all that has landed, but for the segment that is written next; says what was deleted."""
        self.roll()
        for _ in range(2):
            self.log.topic("noise", schema={"n": int})
            self.log["noise"].append({"n": 0})
            self.log.checkpoint()
        self.clock.advance(1)
        return self.log.cleanup().deleted

    def compact_table(self, name: str = "orders") -> None:
        """All rows into one file, in no order, as somebody's compaction would; the files before it are gone."""
        with self.native(name) as table:
            rows = table.scan().to_arrow()
            paths = [each.file.file_path for each in table.scan().plan_files()]
            table.overwrite(rows.take(list(range(rows.num_rows))[::-1]))
        for path in paths:
            Path(path.removeprefix("file://")).unlink()

    def read(self, *args: Any, name: str = "orders", **options: Any) -> list[int]:
        """What a read gives of x."""
        return [row["x"] for row in self.log[name].read(*args, **options).to_pylist()]


def places(rows: Rows) -> list[tuple[int, int]]:
    """Partition and offset of each row."""
    return [(row["_hw_partition"], row["_hw_offset"]) for row in rows.to_pylist()]
