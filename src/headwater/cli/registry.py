"""`headwater registry ls|add|place|find`: the logs of a registry, and which of them a topic lives in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.data_directory import AsJson
from headwater.cli.failures import exit_codes
from headwater.cli.output import emit_json, printable, remarks, results, say
from headwater.cli.plain_table import Column, print_table
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.api import Registry

RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        envvar="HEADWATER_REGISTRY",
        metavar="URL",
        help="Where the registry is: s3://bucket/prefix.",
        show_default=False,
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]


def list_logs(registry: RegistryOption = None, as_json: AsJson = False) -> None:
    """List the logs of a registry, with how many topics live in each.

    Exit code 0: done. 2: no registry was named. 75: try again.
    """
    with exit_codes(as_json=as_json, command="registry ls"):
        found = _open(registry).logs()
        if as_json:
            content = [{"log": each.name, "url": each.url, "topics": each.topics} for each in found]
            emit_json("registry ls", {"logs": content})
        elif found:
            columns = [Column("LOG", keep=True, style="bold"), Column("TOPICS", right=True), Column("URL")]
            print_table(results(), columns, [(each.name, f"{each.topics:,}", printable(each.url)) for each in found])
        else:
            say(remarks(), "The registry knows no log yet; `headwater registry add NAME URL` adds one.")


def add_log(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the log is called.", show_default=False)],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where it is: s3://bucket/prefix.", show_default=False)],
    registry: RegistryOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a log known to a registry. It stays: a name means one place for ever.

    Exit code 0: done, or known already. 2: not a name or not a URL. 75: the name is another log's, or try again.
    """
    with exit_codes(as_json=as_json, command="registry add"):
        _open(registry).add_log(name, url)
        if as_json:
            emit_json("registry add", {"log": name, "url": url})
        else:
            say(results(), f"{name}: {printable(url)}")


def place_topic(
    topic: Topic,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="NAME", help="In this log. Without it: the one with the fewest topics."),
    ] = None,
    registry: RegistryOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic its log, for ever: topics are not moved. One that has a log keeps it.

    Exit code 0: done. 2: there is no such log. 75: it lives in another log than `--log` says, or try again.
    """
    with exit_codes(as_json=as_json, command="registry place"):
        _tell("registry place", topic, _open(registry).place(topic, log), as_json=as_json)


def find_topic(topic: Topic, registry: RegistryOption = None, as_json: AsJson = False) -> None:
    """Say which log a topic lives in: its URL, for `--data`.

    Exit code 0: done. 2: it has no place yet. 75: try again.
    """
    with exit_codes(as_json=as_json, command="registry find"):
        _tell("registry find", topic, _open(registry).find(topic), as_json=as_json)


def _tell(command: str, topic: str, url: str, *, as_json: bool) -> None:
    if as_json:
        emit_json(command, {"topic": topic, "url": url})
    else:
        say(results(), printable(url))


def _open(registry: str | None) -> Registry:
    if registry is None:
        raise InvalidRequest("say where the registry is: --registry s3://bucket/prefix, or HEADWATER_REGISTRY")
    from headwater.api import Registry

    return Registry(registry)
