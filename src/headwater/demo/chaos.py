"""A run of `headwater demo chaos`: writers write, landers land, and the schedule's steps come between.

    begin      the owner of the log, four writers, three landers: eight processes with this one (crew.py)
    steps      of the schedule, one after the other; writers never stop for any of them (steps.py)
    settle     writers stop, a lander lands what is left
    judge      `audit` of every row; then plain pyiceberg against what was acknowledged (verdict.py)
    damage     on purpose, behind the verdict: the audit must name it, and pass again when it was undone
    forget     the log lets go of what was verified: the audit must pass by the ledger alone

PROMISE  The product is used as its users do: by `headwater.connect`, `log.land()` and `log.audit()`.
         Every process that was started has ended when the run is left, however it is left.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from headwater.api.log import Log
from headwater.api.opening import open as open_log
from headwater.clock import Clock
from headwater.demo.children import ChildTrouble
from headwater.demo.crew import ROUNDS_MAX, ChaosFailed, Crew
from headwater.demo.rows import CHANGES_TABLE, ORDERS, ORDERS_TABLE
from headwater.demo.schedule import Step
from headwater.demo.steps import Steps
from headwater.demo.told import Listener, Outcome
from headwater.demo.verdict import Found, judge_changes, judge_orders
from headwater.demo.wreckers import Wreckers
from headwater.errors import HeadwaterError
from headwater.lake.audit_report import AuditReport
from headwater.lake.catalog import catalog_place
from headwater.settings import LogSettings, Settings
from headwater.topics.answers import Status


class Chaos:
    def __init__(
        self, directory: str, schedule: Sequence[Step], *, seed: int, clock: Clock, listener: Listener | None = None
    ) -> None:
        self.schedule = schedule
        self.steps_taken = 0
        self.crew = Crew(directory, clock, listener)
        self._seed = seed
        self._wreckers = Wreckers(catalog_place(None, directory=directory).properties)
        self._reader: Log | None = None
        self._reading = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as closing:
            if self._reader is not None:
                closing.callback(self._reader.close)
            closing.callback(self.crew.close)

    def run(self) -> Outcome:
        """All of it; a failure is an Outcome too."""
        findings: list[str] = []
        report: AuditReport | None = None
        found: list[Found] = []
        damage_found: list[str] = []
        try:
            self._begin()
            steps = Steps(self.crew, self._wreckers)
            for step in self.schedule:
                steps.take(step)
                self.steps_taken += 1
            self._settle()
            report = self._audit()
            found = self._judge()
            findings += [told for topic in report for told in topic.told()]
            findings += [told for each in found for told in each.told()]
            if not findings and not report.passed:
                findings.append(f"the audit did not pass: {report}")
            if not findings:
                damage_found = self._damage()
                self._forget()
        except (ChaosFailed, ChildTrouble, HeadwaterError) as error:
            findings.append(str(error))
            self.crew.tell(findings[-1], "bad")
        except Exception as error:  # noqa: BLE001  whatever it is, it is told with the seed, and where it came from
            where = traceback.extract_tb(error.__traceback__)[-1]
            findings.append(f"{type(error).__name__}: {error} ({where.name}, {where.filename}:{where.lineno})")
            self.crew.tell(findings[-1], "bad")
        return self._outcome(findings, report, found, damage_found)

    def _outcome(
        self, findings: list[str], report: AuditReport | None, found: list[Found], damage_found: list[str]
    ) -> Outcome:
        known, counts = self.crew.known, self.crew.counts
        counts.sent_again = sum(account.duplicates for account in known.accounts)
        return Outcome(
            seed=self._seed,
            steps=len(self.schedule),
            steps_taken=self.steps_taken,
            passed=not findings,
            seconds=self.crew.since_s(),
            acknowledged=known.rows,
            judged=bool(found),
            in_tables=sum(each.rows for each in found),
            lost=sum(len(each.missing) for each in found),
            doubled=sum(len(each.doubled) for each in found),
            altered=sum(len(each.altered) for each in found),
            never_sent=sum(len(each.never_sent) for each in found),
            counts=counts,
            audit=_audit_line(report),
            findings=findings,
            damage_found=damage_found,
        )

    def status(self) -> Status | None:
        """The log at a glance, for the picture; None while there is none, or somebody else reads."""
        if self._reader is None or not self._reading.acquire(timeout=0.01):
            return None
        try:
            return self._reader.status()
        except HeadwaterError:
            return None  # it is being opened again, or was closed: the picture shows what it knew
        finally:
            self._reading.release()

    # From beginning to end ---------------------------------------------------------------------

    def _begin(self) -> None:
        self.crew.begin()
        self._reader = open_log(self.crew.directory)

    def _settle(self) -> None:
        self.crew.stop_writers()
        self.crew.tell(f"writers have stopped: {self.crew.known.rows:,} rows acknowledged")
        for _ in range(ROUNDS_MAX):
            report = self.crew.land()
            if report and all(each["outcome"] == "nothing" and each["verified"] for each in report):
                return
        raise ChaosFailed(f"after {ROUNDS_MAX} rounds there is still something to land")

    def _audit(self) -> AuditReport:
        assert self._reader is not None
        with self._reading:
            report = self._reader.audit(full=True)
        for line in str(report).splitlines():
            self.crew.tell(f"audit: {line.strip()}", "good" if report.passed else "bad")
        return report

    def _judge(self) -> list[Found]:
        found = []
        for name, judge in ((ORDERS_TABLE, judge_orders), (CHANGES_TABLE, judge_changes)):
            with self._wreckers.table(name) as table:
                found.append(judge(name, table.scan().to_arrow(), self.crew.known))
        for each in found:
            well = (
                f"pyiceberg: {each.table}: {each.expected:,} rows acknowledged, each there once; {each.rows:,} in all"
            )
            for told in each.told() or [well]:
                self.crew.tell(told, "good" if each.passed else "bad")
        return found

    def _damage(self) -> list[str]:
        """Would the audit have said so?  One row deleted and one doubled, then undone."""
        assert self._reader is not None
        deleted, doubled = list(self.crew.known.numbers(keyed=False))[:2]
        whole = self._wreckers.damage(ORDERS_TABLE, "id", deleted, doubled)
        with self._reading:
            told = list(self._reader.audit(ORDERS)[ORDERS].told())
        if not any("missing" in each for each in told) or not any("doubled" in each for each in told):
            raise ChaosFailed(f"a row was deleted and one doubled by hand, and the audit said: {told}")
        self.crew.tell(f"damage done by hand is named: {'; '.join(told)}", "good")
        self._wreckers.set_back(ORDERS_TABLE, whole)
        with self._reading:
            report = self._reader.audit(full=True)
        if not report.passed:
            raise ChaosFailed(f"the damage was undone, and the audit says: {report}")
        return told

    def _forget(self) -> None:
        """The log lets go of what was verified, and the audit passes by the ledger alone."""
        self.crew.end_owner()
        with open_log(self.crew.directory, settings=Settings(log=LogSettings(deletion_grace_s=0.0))) as log:
            before = log.status().segments
            log.cleanup()
            after = log.status().segments
            report = log.audit(full=True)
        if not report.passed:
            raise ChaosFailed(f"the log has let go of what was verified, and the audit says: {report}")
        self.crew.tell(
            f"the log forgets: {before} segments become {after}; the audit passes by the ledger alone", "good"
        )


def _audit_line(report: AuditReport | None) -> str:
    if report is None:
        return "it did not come to an audit"
    rows = sum(topic.rows for topic in report)
    owed = sum(topic.owed for topic in report)
    verdict = "PASS" if report.passed else "FAIL"
    if rows != owed:
        # What a person has answered for (--landed-lsn) is in no landing of the ledger's; the count of our own has all.
        return f"{verdict}: {owed:,} rows read; {rows - owed:,} more are there by a person's word (--landed-lsn)"
    return f"{verdict}: {rows:,} of {owed:,} rows, all read"
