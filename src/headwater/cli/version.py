"""`headwater --version`: which version this is, and the version of each format that it writes and speaks.

NOT HERE  what is installed beside it, and whether that will do: `headwater check`.
"""

from __future__ import annotations

from importlib import metadata

from headwater.cli.output import JSON_VERSION, emit_json, results, say
from headwater.frames.segment_header import FORMAT

COMMAND = "version"


def own_version() -> str:
    """Of the package, as it was installed."""
    try:
        return metadata.version("headwater")
    except metadata.PackageNotFoundError:
        return "(not installed: run from its sources)"


def formats() -> dict[str, tuple[int, str]]:
    """Each format by its name: its version, and where it is met.  docs/formats says what is in them."""
    from headwater.api.registry import FORMAT as REGISTRY
    from headwater.log.index import VERSION as INDEX
    from headwater.log.manifest import FORMAT as TRIM
    from headwater.metadata.checkpoint import VERSION as CHECKPOINT
    from headwater.protocol.codec import VERSION as PROTOCOL
    from headwater.server.tokens import FORMAT as TOKENS

    return {
        "log": (FORMAT, "frames and segments: of the log, of the journal and of the ledger"),
        "index": (INDEX, "of a sealed segment"),
        "checkpoint": (CHECKPOINT, "of the journal, and of the log"),
        "trim": (TRIM, "of a log in a bucket"),
        "registry": (REGISTRY, "of logs in a bucket"),
        "tokens": (TOKENS, "of a server"),
        "protocol": (PROTOCOL, "between clients and servers"),
        "json": (JSON_VERSION, "what --json gives"),
    }


def show_version(*, as_json: bool) -> None:
    """On stdout."""
    if as_json:
        numbers = {name: number for name, (number, _) in formats().items()}
        emit_json(COMMAND, {"headwater": own_version(), "formats": numbers})
        return
    say(results(), f"headwater {own_version()}, log format {FORMAT}")
    for name, (number, where) in formats().items():
        say(results(), f"{name:<10} {number}  {where}", indent=" " * 14, first="  ")
