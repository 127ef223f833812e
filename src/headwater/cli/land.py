"""`headwater land [TOPIC...]`: put rows into their tables, once, or again and again until it is told to stop.

ONCE     Without --every: one round, for cron or Airflow.
ON       With --every: it looks that often, and lands the topics that are due (lake/lag.py).  A topic that is halted, or
         that fails, does not keep it from the others, or from the next round.
STOP     A first Ctrl-C or SIGTERM lets the round end; a second one abandons it, which loses nothing: the table says how
         far it has come, and the next lander goes on from there.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.completion import topic_names
from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, locate, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import code_of, exit_codes, tell
from headwater.cli.interrupts import Interrupts
from headwater.cli.landing_output import as_content, show_round
from headwater.cli.output import emit_json, remarks, say
from headwater.cli.spark_option import SparkConnect, SparkMaster, spark_session
from headwater.cli.topic_lookup import topic_named
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.settings import LandingSettings, Settings, bucket_settings
from headwater.storage.places import is_bucket

if TYPE_CHECKING:
    from headwater.api import LandingReport, Log

COMMAND = "land"
DEFAULTS = LandingSettings()


class Verify(StrEnum):
    READ_BACK = "read-back"
    METADATA = "metadata"


Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]...",
        help="Only these topics. Without: all that have a table.",
        show_default=False,
        autocompletion=topic_names,
    ),
]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="Go on, and look this often: 30s, 5min.", show_default=False),
]
Once = Annotated[bool, typer.Option("--once", help="One round of everything, and no more; so it is without --every.")]
Freshness = Annotated[
    str | None,
    typer.Option(
        "--freshness",
        metavar="TIME",
        help=f"With --every: land a topic once its oldest row that has not landed is this old.  "
        f"[default: {DEFAULTS.freshness_s:.0f}s]",
        show_default=False,
    ),
]
TargetFileSize = Annotated[
    str | None,
    typer.Option(
        "--target-file-size",
        metavar="SIZE",
        help=f"With --every: or once so many bytes of it wait.  [default: {DEFAULTS.target_file_bytes >> 20}MiB]",
        show_default=False,
    ),
]
VerifyOption = Annotated[
    Verify,
    typer.Option(
        "--verify",
        metavar="HOW",
        help="What has landed is read back and compared, `read-back`; or only looked up in the table, `metadata`.",
    ),
]
AfterRollback = Annotated[
    list[str] | None,
    typer.Option(
        "--after-rollback",
        metavar="TOPIC",
        help="This topic's table was rolled back or replaced, and that was meant: land again what it lacks.",
        show_default=False,
    ),
]
LandedLsn = Annotated[
    list[str] | None,
    typer.Option(
        "--landed-lsn",
        metavar="TOPIC=LSN",
        help="This topic's table holds everything up to this LSN: for a halt by mark-unproven, after an audit.",
        show_default=False,
    ),
]


def land(
    topics: Topics = None,
    data: DataOption = None,
    catalog: CatalogOption = None,
    every: Every = None,
    once: Once = False,
    freshness: Freshness = None,
    target_file_size: TargetFileSize = None,
    spark: SparkMaster = None,
    connect: SparkConnect = None,
    verify: VerifyOption = Verify.READ_BACK,
    after_rollback: AfterRollback = None,
    landed_lsn: LandedLsn = None,
    as_json: AsJson = False,
) -> None:
    """Land topics: put their rows into their Iceberg tables, each exactly once, and check that they are there.

    It may run beside the log's owner, and beside other landers. The first landing into a catalog checks it first.

    Exit code 0: done, or nothing to do. 2: another call is needed. 3: a topic is halted, a person decides
    (docs/landing.md). 75: a topic could not be landed this time; try again. 130: the round was abandoned.
    """
    # What became of each topic is told once, in a line of its own.
    logging.getLogger("headwater.lake").addHandler(logging.NullHandler())
    with exit_codes(as_json=as_json, command=COMMAND):
        every_s = _every(every, once=once, as_json=as_json)
        decided = _landed_lsns(landed_lsn or [])
        if every_s is not None and (after_rollback or decided):
            raise InvalidRequest("--after-rollback and --landed-lsn are for one round: without --every")
        defaults = bucket_settings() if is_bucket(locate(data)) else Settings()
        settings = replace(defaults, landing=_settings(freshness, target_file_size))
        with open_topics(data, catalog=catalog, settings=settings) as log:
            for name in topics or []:
                topic_named(log, name)
            with spark_session(spark, connect) as session:
                rounds = Rounds(
                    log,
                    lambda: log.land(
                        topics or None,
                        due_only=every_s is not None,
                        spark=session,
                        verify=verify.value,
                        after_rollback=after_rollback or (),
                        landed_lsn=decided,
                    ),
                    as_json=as_json,
                )
                outcome = rounds.run(every_s)
    raise typer.Exit(outcome)


class Rounds:
    """One round of landing, or one after the other."""

    def __init__(self, log: Log, round_: Callable[[], LandingReport], *, as_json: bool) -> None:
        self._log = log
        self._round = round_
        self._as_json = as_json

    def run(self, every_s: float | None) -> ExitCode:
        """Land until there is no more to do, or somebody says stop; the exit code."""
        nobody = Event()
        with Interrupts(signal.SIGTERM) as interrupts:
            while True:
                outcome, stop = self._one(interrupts, goes_on=every_s is not None)
                if stop or every_s is None:
                    return outcome
                try:
                    nobody.wait(every_s)
                except KeyboardInterrupt:
                    return outcome

    def _one(self, interrupts: Interrupts, *, goes_on: bool) -> tuple[ExitCode, bool]:
        """One round: its exit code, and whether somebody said stop meanwhile."""
        report: LandingReport | None = None
        try:
            with interrupts.held():
                report = self._round()
        except KeyboardInterrupt:
            if report is not None:
                self._tell(report, once=not goes_on)
            if report is None or interrupts.insisted:
                say(remarks(), "the round was abandoned; the next one goes on from what the tables say", "yellow")
                return ExitCode.INTERRUPTED, True
            return exit_code(report), True
        except HeadwaterError as error:
            if not goes_on or code_of(error) is not ExitCode.TRY_AGAIN:
                raise
            tell(error)
            return ExitCode.TRY_AGAIN, interrupts.pending
        self._tell(report, once=not goes_on)
        return exit_code(report), False

    def _tell(self, report: LandingReport, *, once: bool) -> None:
        if self._as_json:
            emit_json(COMMAND, as_content(report, self._log.status().landing))
        elif once or report.topics:
            show_round(report, self._log.status().landing, once=once)


def exit_code(report: LandingReport) -> ExitCode:
    """What a script is told of a round."""
    if report.halted:
        return ExitCode.HALTED
    return ExitCode.TRY_AGAIN if report.failed else ExitCode.DONE


def _every(text: str | None, *, once: bool, as_json: bool) -> float | None:
    if text is None or once:
        return None
    if as_json:
        raise InvalidRequest("--json is one object: without --every; `headwater status --json` tells the lag")
    from headwater.topics.policy import seconds_of

    return seconds_of(text, "--every")


def _settings(freshness: str | None, target_file_size: str | None) -> LandingSettings:
    from headwater.topics.policy import bytes_of, seconds_of

    given: dict[str, Any] = {}
    if freshness is not None:
        given["freshness_s"] = seconds_of(freshness, "--freshness")
    if target_file_size is not None:
        given["target_file_bytes"] = bytes_of(target_file_size, "--target-file-size")
    return LandingSettings(**given)


def _landed_lsns(given: list[str]) -> dict[str, int]:
    found = {}
    for text in given:
        name, equals, lsn = text.rpartition("=")
        if not equals or not name or not lsn.isdecimal():
            raise InvalidRequest(f"--landed-lsn is TOPIC=LSN, as in orders=1234: {text!r} is not")
        found[name] = int(lsn)
    return found
