"""`headwater token`: a token is shown once, alone on stdout; what is listed holds none; revoking ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.server import tokens
from headwater.server.tokens import TokenAccess
from headwater.storage.disk import DiskFiles

RUN = CliRunner()


def test_a_token_is_put_on_stdout_alone_and_lets_its_principal_in(tmp_path: Path) -> None:
    data = tmp_path / "data"

    made = RUN.invoke(
        app, ["token", "create", "loader", "--data", str(data), "--allow", "write:orders.*", "--allow", "read:orders"]
    )

    assert made.exit_code == 0
    assert made.stdout.startswith("hw_") and made.stdout.count("\n") == 1
    access = TokenAccess(DiskFiles(data), look_s=None)
    principal = access.authenticate(f"Bearer {made.stdout.strip()}", None)
    assert (principal.name, [str(each) for each in principal.grants]) == ("loader", ["write:orders.*", "read:orders"])


def test_what_is_listed_holds_no_token_and_says_what_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    first = RUN.invoke(app, ["token", "create", "loader", "--allow", "write:*", "--expires", "1ms"]).stdout.strip()
    RUN.invoke(app, ["token", "create", "reports", "--allow", "read:*", "--certificate", "reports.example"])

    shown = RUN.invoke(app, ["token", "list"])
    listed = RUN.invoke(app, ["token", "list", "--json"])

    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["NAME", "loader", "reports"]
    assert "expired" in shown.stdout and "certificate reports.example" in shown.stdout
    found = json.loads(listed.stdout)["principals"]
    assert [(each["name"], each["grants"], each["expired"]) for each in found] == [
        ("loader", ["write:*"], True),
        ("reports", ["read:*"], False),
    ]
    for text in (shown.stdout, listed.stdout, shown.stderr, listed.stderr):
        assert first not in text and tokens.digest_of(first) not in text


def test_a_revoked_token_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    RUN.invoke(app, ["token", "create", "loader", "--allow", "write:*"])

    revoked = RUN.invoke(app, ["token", "revoke", "loader"])
    again = RUN.invoke(app, ["token", "revoke", "loader"])
    nobody = RUN.invoke(app, ["token", "list"])

    assert (revoked.exit_code, again.exit_code, nobody.exit_code) == (0, 2, 0)
    assert nobody.stdout == "" and "Nobody may call" in nobody.stderr
    assert tokens.read_principals(DiskFiles(tmp_path)) == ()


def test_for_programs_each_command_is_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))

    made = json.loads(RUN.invoke(app, ["token", "create", "a", "--allow", "read:*", "--json"]).stdout)
    by_certificate = RUN.invoke(app, ["token", "create", "b", "--allow", "read:*", "--certificate", "b", "--json"])
    revoked = json.loads(RUN.invoke(app, ["token", "revoke", "a", "--json"]).stdout)

    assert made["token"].startswith("hw_") and made["grants"] == ["read:*"]
    assert json.loads(by_certificate.stdout)["certificate"] == "b" and "token" not in json.loads(by_certificate.stdout)
    assert (revoked["command"], revoked["name"]) == ("token revoke", "a")


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "loader"],
        ["create", "loader", "--allow", "everything"],
        ["create", "loader", "--allow", "read:*", "--expires", "soon"],
        ["create", "a b", "--allow", "read:*"],
        ["revoke", "nobody"],
    ],
)
def test_another_call_is_needed_and_nothing_is_made(tmp_path: Path, arguments: list[str]) -> None:
    ended = RUN.invoke(app, ["token", *arguments, "--data", str(tmp_path)])

    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert tokens.read_principals(DiskFiles(tmp_path)) == ()


def test_tokens_are_not_made_through_a_server() -> None:
    ended = RUN.invoke(app, ["token", "create", "a", "--allow", "read:*", "--data", "hw://127.0.0.1:1"])

    assert ended.exit_code == 2
    assert "beside the data" in ended.stderr
