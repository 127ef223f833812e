"""The command `headwater`, and what it is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli import registry as registry_commands
from headwater.cli import token as token_commands
from headwater.cli import topic_commands, topic_show
from headwater.cli.append import append
from headwater.cli.audit import audit
from headwater.cli.check import check
from headwater.cli.demo import demo
from headwater.cli.erase import erase
from headwater.cli.land import land
from headwater.cli.log_dump import dump
from headwater.cli.log_rebuild import rebuild
from headwater.cli.log_repair import repair
from headwater.cli.log_restore import restore_log
from headwater.cli.log_trace import trace
from headwater.cli.log_verify import verify
from headwater.cli.maintain import maintain
from headwater.cli.query import query
from headwater.cli.read import read
from headwater.cli.restore import restore
from headwater.cli.serve import serve
from headwater.cli.status import status
from headwater.cli.version import show_version

app = typer.Typer(
    name="headwater",
    no_args_is_help=True,
    # Paragraphs of a docstring are wrapped anew, to the width of the terminal.
    rich_markup_mode="markdown",
    # An unexpected error is our mistake: its plain traceback is what a report needs.
    pretty_exceptions_enable=False,
)
topic = typer.Typer(help="Make, show, change and delete topics.", no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(topic, name="topic")
log = typer.Typer(help="Look at a log, check it, mend it.", no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(log, name="log")
registry = typer.Typer(
    help="Which logs there are, and which of them a topic lives in.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(registry, name="registry")
token = typer.Typer(
    help="Who may call a server of this data, and what they may do.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(token, name="token")

app.add_typer(demo, name="demo")

topic.command("create")(topic_commands.create)
topic.command("list")(topic_show.list_topics)
topic.command("describe")(topic_show.describe_topic)
topic.command("alter")(topic_commands.alter)
topic.command("delete")(topic_commands.delete)
topic.command("compact")(topic_commands.compact)

app.command("append")(append)
app.command("read")(read)
app.command("serve")(serve)
app.command("query")(query)
app.command("land")(land)
app.command("maintain")(maintain)
app.command("audit")(audit)
app.command("erase")(erase)
app.command("restore")(restore)
app.command("check")(check)
app.command("status")(status)

log.command("verify")(verify)
log.command("dump")(dump)
log.command("repair")(repair)
log.command("rebuild")(rebuild)
log.command("restore")(restore_log)
log.command("trace")(trace)

registry.command("ls")(registry_commands.list_logs)
registry.command("add")(registry_commands.add_log)
registry.command("place")(registry_commands.place_topic)
registry.command("find")(registry_commands.find_topic)

token.command("create")(token_commands.create)
token.command("list")(token_commands.list_tokens)
token.command("revoke")(token_commands.revoke)


@app.callback(invoke_without_command=True)
def headwater(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is, and which formats it writes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: as one JSON object.")] = False,
) -> None:
    """A durable event log for Python: its topics, their rows, and tools to look at the log, check it and mend it.

    All results go to stdout and all else to stderr. Exit codes: 0 done, 1 a check FAILed, 2 another call is needed,
    3 HALTED (a person is needed), 75 try again, 130 interrupted. NO_COLOR is honoured.
    """
    if version:
        show_version(as_json=as_json)
        raise typer.Exit
    if as_json:
        context.fail("--json stands after the command that is to answer with it, or beside --version.")
    if context.invoked_subcommand is None:
        context.fail("Missing command.")
