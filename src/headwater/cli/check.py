"""`headwater check [--catalog [NAME]]`: what can be seen before it hurts, each thing with a verdict and with advice.

WITHOUT  --catalog: the machine, the data directory, the log's clock; or a server, as this client meets it.
CATALOG  Whether a catalog keeps what exactly-once needs, seen and not believed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.checks import Checked, Verdict, check_directory
from headwater.cli.data_directory import AsJson, DataOption, locate, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import emit_json, printable, results, say, say_in_colour
from headwater.clock import SystemClock
from headwater.protocol.address import is_server
from headwater.settings import Settings

COMMAND = "check"
COLOURS = {Verdict.PASS: "green", Verdict.NOTE: "yellow", Verdict.FAIL: "red"}

CatalogName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        envvar="HEADWATER_CATALOG",
        help="The catalog, by its name in pyiceberg's configuration. Without it: what `catalog` in ./headwater.toml "
        "says, else SQLite in the data directory.",
        show_default=False,
    ),
]
CheckCatalog = Annotated[bool, typer.Option("--catalog", help="Check the catalog, and nothing else.")]


def check(
    name: CatalogName = None, catalog: CheckCatalog = False, data: DataOption = None, as_json: AsJson = False
) -> None:
    """Check what rows depend on: disk, file system, clock, versions, permissions; or a server, as it is met from here.

    With --catalog: race real conditional commits on a table of its own, and say PASS or FAIL for each property. The
    first landing into a catalog does it by itself. The result is written into the ledger.

    Exit code 0: no FAIL. 1: one FAILed. 2: another call is needed. 75: the catalog does not answer.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        passed = _check_catalog(data, name, as_json=as_json) if catalog else _check_place(data, as_json=as_json)
    raise typer.Exit(ExitCode.DONE if passed else ExitCode.FAIL)


def _check_place(given: str | None, *, as_json: bool) -> bool:
    data = locate(given)
    clock = SystemClock()
    if is_server(data):
        from headwater.cli.server_checks import check_server

        found = list(check_server(data, clock))
    else:
        found = list(check_directory(data, Settings(), clock))
    passed = all(each.verdict is not Verdict.FAIL for each in found)
    if as_json:
        emit_json(COMMAND, {"data": data, "passed": passed, "checks": [as_content(each) for each in found]})
    else:
        show(found)
    return passed


def as_content(each: Checked) -> dict[str, str]:
    return {"name": each.name, "verdict": str(each.verdict), "detail": each.detail, "advice": each.advice}


def show(found: list[Checked]) -> None:
    """A line each, and below it what to do."""
    width = max(len(each.name) for each in found)
    for each in found:
        say_in_colour(
            results(), (str(each.verdict), COLOURS[each.verdict]), f"  {each.name:<{width}}  {printable(each.detail)}"
        )
        if each.advice:
            say(results(), printable(each.advice), first=" " * (width + 8), indent=" " * (width + 8))


def _check_catalog(data: str | None, name: str | None, *, as_json: bool) -> bool:
    with open_topics(data, making=True, catalog=name) as log:
        found = log.check_catalog()
    passed = all(each.passed for each in found)
    if as_json:
        properties = [
            {"name": each.name, "passed": each.passed, "detail": each.detail, "seconds": round(each.seconds, 3)}
            for each in found
        ]
        emit_json(COMMAND, {"passed": passed, "properties": properties})
    else:
        for each in found:
            verdict = ("PASS", "green") if each.passed else ("FAIL", "red")
            say_in_colour(results(), verdict, f"  {each.name}: {printable(each.detail)} ({each.seconds:.1f} s)")
    return passed
