"""What the owners of tables do to them while landers are at work: maintenance, deletes, rollbacks, replacements.

Each act is one commit of somebody else, as Iceberg makes it: what it keeps (uuid, properties, snapshots) and what it
takes away is as an engine would.  The judge is told the truth of every snapshot that an act makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from headwater.lake.ledger_records import Begun, Intended
from headwater.lake.upkeep import ListedFile, UpkeepSettings, find_orphans
from tests.simulation.lake_checks import Judge, Truth
from tests.simulation.lake_world import Catalog, Row, Snapshot, Version

Act = Callable[[str], bool]
"""Done to a table; False where there was nothing to do it to."""


class Owner:
    def __init__(self, catalog: Catalog, judge: Judge, chance: Random) -> None:
        self._catalog = catalog
        self._judge = judge
        self._chance = chance

    # Maintenance: rows and landed LSN stay ------------------------------------------------------------------

    def rewrite_data_files(self, table: str) -> bool:
        """Compaction: files become one, without the rows that were deleted from them."""
        version, head = self._head(table)
        if version is None or head is None or not head.files or self._damaged(head):
            return False
        chosen = [path for path in head.files if self._chance.random() < 0.8] or list(head.files)
        rows = [row for path in chosen for row in self._catalog.store.rows(path) if row not in head.deleted]
        kept = tuple(path for path in head.files if path not in chosen)
        made = self._written(table, rows)
        left = frozenset(row for path in kept for row in self._catalog.store.rows(path)) & head.deleted
        self._commit(version, "replace", kept + made, made, deleted=left)
        return True

    def rewrite_in_pieces(self, table: str) -> bool:
        """Sorted anew: every row gets another file."""
        version, head = self._head(table)
        if version is None or head is None or not head.files or self._damaged(head):
            return False
        rows = sorted(self._judge.rows_of(head), key=lambda row: (row[3] * 7 % 5, row))
        half = len(rows) // 2
        made = self._written(table, rows[:half]) + self._written(table, rows[half:])
        self._commit(version, "replace", made, made, deleted=frozenset())
        return True

    def expire_all_but_the_head(self, table: str) -> bool:
        version, head = self._head(table)
        if version is None or head is None:
            return False
        return self._expire(version, set(version.snapshots) - {head.snapshot_id})

    def expire_and_forget_parents(self, table: str) -> bool:
        """All but the head, as pyiceberg does it: a snapshot forgets that it had a parent."""
        version, head = self._head(table)
        assert version is not None and head is not None
        return self._expire(version, set(version.snapshots) - {head.snapshot_id}, forget_parents=True)

    def expire_the_older(self, table: str) -> bool:
        """All but the last few of main, and what is on no branch."""
        version, _ = self._head(table)
        if version is None:
            return False
        kept = {each.snapshot_id for each in version.history()[: self._chance.randint(1, 3)]}
        return self._expire(version, set(version.snapshots) - kept)

    def expire_one(self, table: str) -> bool:
        """By its id: any but the head, such as the last landing, or the base of one that is under way."""
        version, head = self._head(table)
        if version is None or head is None or len(version.snapshots) < 2:
            return False
        return self._expire(version, {self._chance.choice(sorted(set(version.snapshots) - {head.snapshot_id}))})

    def orphans_on_no_branch(self, table: str) -> bool:
        """Expire what a rollback has left."""
        version, _ = self._head(table)
        if version is None:
            return False
        return self._expire(version, set(version.snapshots) - {each.snapshot_id for each in version.history()})

    # Rows of its own, and deletes ---------------------------------------------------------------------------

    def append_of_its_own(self, table: str) -> bool:
        version, head = self._head(table)
        if version is None:
            return False
        made = self._written(table, [(0, 0, 0, self._catalog.number())])
        files = head.files if head is not None else ()
        self._commit(version, "append", files + made, made, deleted=head.deleted if head is not None else frozenset())
        return True

    def delete_newest_rows(self, table: str) -> bool:
        """Row by row, or by writing the files anew without them."""
        version, head = self._head(table)
        if version is None or head is None or self._damaged(head):
            return False
        rows = sorted(self._judge.rows_of(head), key=lambda row: row[1], reverse=True)
        if not rows:
            return False
        gone = frozenset(rows[: self._chance.randint(1, 3)])
        if self._chance.random() < 0.5:
            self._commit(version, "overwrite", head.files, (), deleted=head.deleted | gone, removed=gone)
            return True
        touched = [path for path in head.files if gone & set(self._catalog.store.rows(path))]
        left = [row for path in touched for row in self._catalog.store.rows(path) if row not in gone | head.deleted]
        kept = tuple(path for path in head.files if path not in touched)
        made = self._written(table, left) if left else ()
        still = frozenset(row for path in kept for row in self._catalog.store.rows(path)) & head.deleted
        self._commit(version, "overwrite" if made else "delete", kept + made, made, deleted=still, removed=gone)
        return True

    def truncate(self, table: str) -> bool:
        version, head = self._head(table)
        if version is None or head is None or self._damaged(head):
            return False
        self._commit(version, "delete", (), (), deleted=frozenset(), removed=frozenset(self._judge.rows_of(head)))
        return True

    # Acts that take landings back ---------------------------------------------------------------------------

    def roll_back(self, table: str) -> bool:
        """To a snapshot before."""
        version, _ = self._head(table)
        if version is None or len(version.history()) < 2:
            return False
        self._move(version, self._chance.choice(version.history()[1:4]))
        return True

    def set_current_snapshot(self, table: str) -> bool:
        """To any that is there: also forward again."""
        version, head = self._head(table)
        if version is None or head is None or len(version.snapshots) < 2:
            return False
        self._move(version, version.snapshots[self._chance.choice(sorted(set(version.snapshots) - {head.snapshot_id}))])
        return True

    def move(self, table: str, snapshot_id: int) -> None:
        version = self._catalog.tables[table]
        self._move(version, version.snapshots[snapshot_id])

    def roll_back_compact_and_expire(self, table: str) -> bool:
        return self.roll_back(table) and self.rewrite_data_files(table) and self.expire_all_but_the_head(table)

    def compact_and_expire(self, table: str) -> bool:
        return self.rewrite_data_files(table) and self.expire_all_but_the_head(table)

    def create_or_replace(self, table: str) -> bool:
        """Empty, or with rows of its own: uuid, properties and snapshots stay, main begins anew."""
        version, _ = self._head(table)
        if version is None:
            return False
        branches = {name: head for name, head in version.branches.items() if name != "main"}
        schema_id = version.schema_id + self._chance.randint(0, 1)
        columns = tuple(name for name in version.columns if not name.startswith("required_"))
        emptied = replace(version, branches=branches, schema_id=schema_id, columns=columns)
        if self._chance.random() < 0.4:
            made = self._written(table, [(0, 0, 0, self._catalog.number())])
            self._commit(emptied, "overwrite", made, made, truth=Truth())
        else:
            self._catalog.change(table, emptied)
        return True

    def replace_by_nothing(self, table: str) -> bool:
        """CREATE OR REPLACE TABLE with the same columns, empty."""
        version, _ = self._head(table)
        assert version is not None
        branches = {name: head for name, head in version.branches.items() if name != "main"}
        self._catalog.change(table, replace(version, branches=branches))
        return True

    def copy_into_itself(self, table: str) -> bool:
        """CREATE OR REPLACE TABLE t AS SELECT * FROM t: every row stays, and all history goes."""
        version, head = self._head(table)
        if version is None or head is None or self._damaged(head):
            return False
        emptied = replace(version, branches={name: each for name, each in version.branches.items() if name != "main"})
        made = self._written(table, self._judge.rows_of(head))
        truth = replace(self._judge.truths[head.snapshot_id], copied=True)
        self._commit(emptied, "overwrite", made, made, truth=truth)
        return True

    def drop(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        self._catalog.change(table, None)
        self._judge.dropped(table)
        return True

    def drop_and_create(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        self.drop(table)
        columns = tuple(name for name in version.columns if not name.startswith("required_"))
        self._catalog.change(table, Version(table, f"uuid-{self._catalog.number()}", columns=columns))
        return True

    def cherry_pick(self, table: str) -> bool:
        """A landing that was rolled back, onto what main is now."""
        return self._cherry_pick(table, follows=True)

    def cherry_pick_wrongly(self, table: str) -> bool:
        """One whose rows do not follow: they are there already, or rows between are not."""
        return self._cherry_pick(table, follows=False)

    def _cherry_pick(self, table: str, *, follows: bool) -> bool:
        version, head = self._head(table)
        if version is None or head is None:
            return False
        truth = self._judge.truths[head.snapshot_id]
        if truth.spoiled:
            return False
        on_main = {each.snapshot_id for each in version.history()}
        for source in version.snapshots.values():
            picked = self._judge.truths[source.snapshot_id]
            if source.snapshot_id in on_main or not source.added or "headwater.lsn-from" not in source.summary:
                continue
            if picked.number != truth.number or any(path not in self._catalog.store.files for path in source.added):
                continue
            if (int(source.summary["headwater.lsn-from"]) == truth.landed) is not follows:
                continue
            if source.parent_id == head.snapshot_id:
                self._move(version, source)
                return True
            self._commit(
                version,
                "append",
                head.files + source.added,
                source.added,
                deleted=head.deleted,
                truth=replace(truth, landed=picked.landed, spoiled=not follows),
                summary={"source-snapshot-id": str(source.snapshot_id)},
            )
            return True
        return False

    def mend(self, table: str) -> bool:
        """Back to the last snapshot that is not spoiled; a table that has none is dropped."""
        version, _ = self._head(table)
        assert version is not None
        for snapshot in version.history():
            if not self._judge.truths[snapshot.snapshot_id].spoiled:
                self._move(version, snapshot)
                return True
        return self.drop(table)

    # Schema, spec, properties -------------------------------------------------------------------------------

    def add_a_column(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        columns = (*version.columns, f"owner_{self._catalog.number()}")
        self._catalog.change(table, replace(version, schema_id=version.schema_id + 1, columns=columns))
        return True

    def require_a_column(self, table: str) -> bool:
        """One that no row of the topic can fill."""
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        columns = (*version.columns, f"required_{self._catalog.number()}")
        self._catalog.change(table, replace(version, schema_id=version.schema_id + 1, columns=columns))
        return True

    def drop_required_columns(self, table: str) -> bool:
        version = self._catalog.tables[table]
        columns = tuple(name for name in version.columns if not name.startswith("required_"))
        self._catalog.change(table, replace(version, schema_id=version.schema_id + 1, columns=columns))
        return True

    def change_the_spec(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        self._catalog.change(table, replace(version, spec_id=version.spec_id + 1))
        return True

    def set_a_property(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None:
            return False
        self._catalog.change(
            table, replace(version, properties={**version.properties, "owner": str(self._chance.random())})
        )
        return True

    def unset_the_property(self, table: str) -> bool:
        version = self._catalog.tables.get(table)
        if version is None or "headwater.landed.main" not in version.properties:
            return False
        left = {name: value for name, value in version.properties.items() if name != "headwater.landed.main"}
        self._catalog.change(table, replace(version, properties=left))
        return True

    # The store ----------------------------------------------------------------------------------------------

    def lose_a_file(self, table: str) -> bool:
        """A store that keeps a file no longer, though a snapshot needs it."""
        version, head = self._head(table)
        if version is None or head is None or not head.files:
            return False
        path = self._chance.choice(head.files)
        if path not in self._catalog.store.files:
            return False
        self._judge.lost[path] = self._judge.step
        self._catalog.store.remove(path)
        return True

    def remove_orphans(self, table: str, in_flight: Iterable[Begun | Intended], now_us: int) -> bool:
        """By upkeep's own rule, as if every file were old: only what is referenced or in flight by the ledger stays."""
        listed = [ListedFile(path, 1, 0) for path in self._catalog.store.files if path.startswith(f"{table}/")]
        version = self._catalog.tables.get(table)
        snapshots = version.snapshots.values() if version is not None else ()
        referenced = {path for snapshot in snapshots for path in snapshot.files}
        found = find_orphans(listed, referenced, in_flight, now_us=now_us, settings=UpkeepSettings())
        for file in found.removable:
            self._catalog.store.orphans.add(file.path)
            self._catalog.store.remove(file.path)
        return bool(found.removable)

    # ---------------------------------------------------------------------------------------------------------

    def _head(self, table: str) -> tuple[Version | None, Snapshot | None]:
        version = self._catalog.tables.get(table)
        return version, version.head if version is not None else None

    def _damaged(self, head: Snapshot) -> bool:
        return any(path not in self._catalog.store.files for path in head.files)

    def _written(self, table: str, rows: list[Row]) -> tuple[str, ...]:
        if not rows:
            return ()
        path = f"{table}/owner-{self._catalog.number()}.parquet"
        self._catalog.store.write(path, rows)
        return (path,)

    def _commit(
        self,
        version: Version,
        operation: str,
        files: tuple[str, ...],
        added: tuple[str, ...],
        *,
        deleted: frozenset[Row] = frozenset(),
        removed: frozenset[Row] = frozenset(),
        truth: Truth | None = None,
        summary: dict[str, str] | None = None,
    ) -> None:
        head = version.head
        below = self._judge.truth_of(head)
        snapshot = Snapshot(
            snapshot_id=2_000_000 + self._catalog.number(),
            parent_id=head.snapshot_id if head is not None else None,
            operation=operation,
            summary=summary or {},
            sequence=version.last_sequence + 1,
            files=files,
            added=added,
            deleted=deleted,
        )
        known = replace(below, removed=below.removed | removed) if truth is None else truth
        written = self._catalog.store.written
        if known.copied and not any(row[0] for path in files for row in written[path]):
            known = Truth()
        self._judge.truths[snapshot.snapshot_id] = known
        self._catalog.change(version.name, version.with_snapshot(snapshot))

    def _move(self, version: Version, to: Snapshot) -> None:
        self._catalog.change(version.name, replace(version, branches={**version.branches, "main": to.snapshot_id}))

    def _expire(self, version: Version, gone: set[int], *, forget_parents: bool | None = None) -> bool:
        if not gone:
            return False
        kept = {each: snapshot for each, snapshot in version.snapshots.items() if each not in gone}
        if forget_parents or (forget_parents is None and self._chance.random() < 0.3):
            kept = {
                each: replace(snapshot, parent_id=None) if snapshot.parent_id in gone else snapshot
                for each, snapshot in kept.items()
            }
        needed = {path for snapshot in kept.values() for path in snapshot.files}
        self._catalog.change(version.name, replace(version, snapshots=kept))
        for each in gone:
            for path in version.snapshots[each].files:
                if path not in needed:
                    self._catalog.store.remove(path)
        return True
