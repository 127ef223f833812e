"""`headwater token create|list|revoke`: who may call a server of this data directory.

PROMISE  A token is put on stdout once, when it is made, alone on its line, so that it can be sent into a file; it is
         kept nowhere, and no command can show it again.
         A server that runs sees a new or a revoked token within two seconds.
NOT HERE A server's own door: tokens are made beside the data, by whoever may write there, and never through a server.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.data_directory import AsJson, DataOption, locate, reached
from headwater.cli.failures import exit_codes
from headwater.cli.output import emit_json, printable, remarks, results, say, utc_text
from headwater.cli.plain_table import Column, print_table
from headwater.clock import SystemClock
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.server.tokens import Kept
    from headwater.storage.files import Files

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="What the principal is called: loader, reports.", show_default=False)
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="RIGHT:TOPIC",
        help="What it may do: `read`, `write`, `land` or `admin`, of one topic (read:orders), of those whose names "
        "begin alike (read:orders.*), or of all (read:*); may be given several times. What is not allowed is refused.",
        show_default=False,
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires", metavar="TIME", help="After this long it is no longer good: 30d, 24h.", show_default=False
    ),
]
CertificateOption = Annotated[
    str | None,
    typer.Option(
        "--certificate",
        metavar="IDENTITY",
        help="No token: who shows a client certificate with this first alternative name, or this common name if it has "
        "none, is this principal.",
        show_default=False,
    ),
]


def create(
    name: Name,
    data: DataOption = None,
    allow: Allow = None,
    expires: Expires = None,
    certificate: CertificateOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and put it on stdout: `headwater token create loader --allow write:orders > token`.

    Only a digest of it is kept, so this is the only time that it is shown.

    Exit code 0: it is made. 2: there is one of this name, or another call is needed. 75: try again.
    """
    with exit_codes(as_json=as_json, command="token create"):
        from headwater.server import access, tokens
        from headwater.topics.policy import seconds_of

        grants = tuple(access.parse_grant(each) for each in allow or ())
        expires_s = None if expires is None else seconds_of(expires, "--expires")
        token = tokens.create(_files(data), name, grants, certificate=certificate or "", expires_s=expires_s)
        if as_json:
            content: dict[str, object] = {"name": name, "grants": [str(each) for each in grants]}
            emit_json("token create", content | ({"token": token} if token else {"certificate": certificate}))
        elif token:
            # Never wrapped, and nothing else on stdout.
            sys.stdout.write(f"{token}\n")
            say(remarks(), f"{name}: this is the only time that the token is shown.")
        else:
            say(results(), f"{name}: whoever shows the certificate of {printable(certificate or '')}.")


def list_tokens(data: DataOption = None, as_json: AsJson = False) -> None:
    """List who may call, and what they may do; no token is shown.

    Exit code 0: done. 2: no data directory was named. 3: the file of the tokens is damaged.
    """
    with exit_codes(as_json=as_json, command="token list"):
        from headwater.server import tokens

        found = tokens.read_principals(_files(data))
        now_us = SystemClock().now_us()
        if as_json:
            emit_json("token list", {"principals": [_content(each, now_us) for each in found]})
        elif found:
            heads = [Column("BY"), Column("MAY"), Column("CREATED"), Column("EXPIRES")]
            rows = [_row(each, now_us) for each in found]
            print_table(results(), [Column("NAME", keep=True, style="bold"), *heads], rows)
        else:
            say(remarks(), "Nobody may call; `headwater token create NAME --allow read:TOPIC` makes a token.")


def revoke(name: Name, data: DataOption = None, as_json: AsJson = False) -> None:
    """Revoke a token, or a certificate's rights: a server that runs refuses it within two seconds.

    Exit code 0: it is revoked. 2: there is none of this name. 75: try again.
    """
    with exit_codes(as_json=as_json, command="token revoke"):
        from headwater.server import tokens

        tokens.revoke(_files(data), name)
        if as_json:
            emit_json("token revoke", {"name": name})
        else:
            say(results(), f"{printable(name)}: revoked.")


def _files(data: str | None) -> Files:
    from headwater.protocol.address import is_server

    where = locate(data)
    if is_server(where):
        raise InvalidRequest("tokens are made beside the data, not through a server: give its directory or bucket")
    return reached(where)


def _content(kept: Kept, now_us: int) -> dict[str, object]:
    return {
        "name": kept.name,
        "certificate": kept.certificate or None,
        "grants": list(kept.grants),
        "created_us": kept.created_us,
        "expires_us": kept.expires_us,
        "expired": kept.expired(now_us),
    }


def _row(kept: Kept, now_us: int) -> tuple[str, ...]:
    by = f"certificate {printable(kept.certificate)}" if kept.certificate else "token"
    expires = "never" if kept.expires_us is None else utc_text(kept.expires_us)
    return (
        kept.name,
        by,
        " ".join(kept.grants),
        utc_text(kept.created_us),
        "expired" if kept.expired(now_us) else expires,
    )
