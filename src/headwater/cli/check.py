"""`headwater check --catalog [NAME]`: whether a catalog keeps what exactly-once needs, seen and not believed."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.data_directory import AsJson, DataOption, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import emit_json, printable, results, say_in_colour
from headwater.errors import InvalidRequest

COMMAND = "check"

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
CheckCatalog = Annotated[bool, typer.Option("--catalog", help="Check the catalog.")]


def check(
    name: CatalogName = None, catalog: CheckCatalog = False, data: DataOption = None, as_json: AsJson = False
) -> None:
    """Check a catalog: race real conditional commits on a table of its own, and say PASS or FAIL for each property.

    The first landing into a catalog does it by itself. The result is written into the ledger.

    Exit code 0: all PASS. 1: one FAILed: do not land there. 2: another call is needed. 75: it does not answer.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        if not catalog:
            raise InvalidRequest("say what to check: --catalog")
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
    raise typer.Exit(ExitCode.DONE if passed else ExitCode.FAIL)
