"""`headwater check`: of a data directory and its machine, and of a server as it is met from here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import checks
from headwater.cli.checks import Verdict
from headwater.cli.exit_codes import ExitCode
from headwater.cli.server_checks import DAY_S, check_certificate, check_difference
from headwater.clock import ManualClock, SystemClock
from headwater.protocol.address import parse_address
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles, Space, file_system_of
from tests.servers.certificates import make_certificates
from tests.servers.headwater import on_loopback, serving
from tests.unit.cli.topics import SETTINGS, make_topics, run, run_json


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = make_topics(tmp_path / "data")
    made.chmod(0o755)
    return made


def verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["verdict"] for each in told["checks"]}


def test_a_directory_that_is_well_passes_everything(data: Path) -> None:
    result = run(data, "check")
    told = run_json(data, "check")

    assert result.exit_code == ExitCode.DONE and told["passed"] is True
    found = verdicts(told)
    assert {"versions", "disk", "file system", "permissions", "log", "clock"} <= found.keys()
    assert found["log"] == found["clock"] == found["permissions"] == "PASS"
    assert any(line.startswith("PASS  log ") for line in result.stdout.splitlines())


def test_what_is_wrong_is_a_fail_with_advice(data: Path) -> None:
    data.chmod(0o777)
    result = run(data, "check")
    data.chmod(0o755)

    assert result.exit_code == ExitCode.FAIL
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("FAIL  permissions"))
    assert lines[at + 1].strip() == f"chmod go-w {data}"


def test_a_file_of_tokens_that_others_may_write_is_a_fail(data: Path) -> None:
    (data / "tokens.json").write_text("{}")
    (data / "tokens.json").chmod(0o666)

    assert any("tokens.json may be written" in each["detail"] for each in run_json(data, "check")["checks"])


def test_a_log_that_is_not_there_or_cannot_be_read_is_a_fail(data: Path, tmp_path: Path) -> None:
    assert verdicts(run_json(tmp_path / "nothing", "check"))["log"] == "FAIL"
    # Given a journal with its first segment gone.
    for segment in (data / "journal").glob("*.seg"):
        segment.write_bytes(b"x" * 8192)

    (found,) = [each for each in run_json(data, "check")["checks"] if each["name"] == "log"]
    assert found["verdict"] == "FAIL" and "headwater log verify" in found["advice"]


def test_a_clock_behind_the_log_is_a_fail(data: Path) -> None:
    late = ManualClock(SystemClock().now_us() - 3600 * 1_000_000)

    found = [each for each in checks.check_log(str(data), SETTINGS, late) if each.name == "clock"]

    assert [each.verdict for each in found] == [Verdict.FAIL]


@pytest.mark.parametrize(("free", "verdict"), [(0, Verdict.FAIL), (600 << 20, Verdict.NOTE), (500 << 30, Verdict.PASS)])
def test_a_disk_that_fills_is_told_before_it_is_full(
    free: int, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "space_of", lambda _: Space(free, 1 << 40))

    assert checks.check_disk(str(tmp_path), Settings()).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("ext4", "PASS"), ("nfs4", "FAIL"), ("tmpfs", "NOTE"), ("overlay", "NOTE"), ("fuse.sshfs", "NOTE"), ("", "PASS")],
)
def test_a_file_system_is_judged_by_its_kind(
    kind: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "file_system_of", lambda _: kind)

    assert checks.check_file_system(str(tmp_path)).verdict == verdict


def test_the_kind_of_a_file_system_is_that_of_the_mount_that_lies_deepest() -> None:
    assert file_system_of("/proc/self") == "proc"
    assert file_system_of("/proc/..") not in ("", "proc")


# A server -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def address(data: Path) -> Iterator[str]:
    with serving(data, log_settings=SETTINGS) as server:
        yield f"hw://127.0.0.1:{server.port}"


def test_a_server_is_met_and_says_who_one_is(address: str) -> None:
    told = run_json(address, "check")

    assert told["passed"] is True
    found = verdicts(told)
    assert found["reachable"] == found["protocol"] == found["rights"] == "PASS"
    assert any("'everybody'" in each["detail"] for each in told["checks"])


def test_a_server_that_is_not_there_is_a_fail_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.server_checks.ANSWER_S", 0.2)

    told = run_json("hw://127.0.0.1:1", "check")

    (found,) = [each for each in told["checks"] if each["name"] == "reachable"]
    assert found["verdict"] == "FAIL" and "is it started" in found["advice"]


def test_a_certificate_that_ends_soon_is_told_and_one_of_a_stranger_is_refused(data: Path, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "ours")
    strangers = make_certificates(tmp_path / "theirs")
    with serving(data, settings=on_loopback(tls=certificates.tls()), log_settings=SETTINGS) as server:
        ours = parse_address(f"hws://localhost:{server.port}?ca_file={certificates.ca_file}", {})
        theirs = parse_address(f"hws://localhost:{server.port}?ca_file={strangers.ca_file}", {})

        soon = check_certificate(ours, "localhost", server.port, SystemClock())
        early = ManualClock(SystemClock().now_us() - int(30 * DAY_S * 1e6))
        good = check_certificate(ours, "localhost", server.port, early)
        strange = check_certificate(theirs, "localhost", server.port, SystemClock())

    assert soon.verdict is Verdict.NOTE and "renew" in soon.advice
    assert good.verdict is Verdict.PASS and "TLSv1" in good.detail
    assert strange.verdict is Verdict.FAIL and "ca_file=" in strange.advice


@pytest.mark.parametrize(("ahead_s", "verdict"), [(0.1, Verdict.PASS), (-1.5, Verdict.PASS), (30.0, Verdict.NOTE)])
def test_clocks_that_differ_are_told(ahead_s: float, verdict: Verdict) -> None:
    assert check_difference(ahead_s).verdict is verdict


def test_a_token_that_others_may_read_is_a_fail(tmp_path: Path, address: str) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)

    told = run_json(f"{address}?token_file={token}", "check")

    (found,) = [each for each in told["checks"] if each["name"] == "token file"]
    assert found == {
        "name": "token file",
        "verdict": "FAIL",
        "detail": f"{token} may be read or written by others (644)",
        "advice": f"chmod 600 {token}",
    }
    assert "secret" not in str(told)


def test_a_caller_whom_the_server_does_not_know_is_told_what_to_show(data: Path) -> None:
    with serving(data, settings=on_loopback(tokens=True), log_settings=SETTINGS, tokens_in=DiskFiles(data)) as server:
        told = run_json(f"hw://127.0.0.1:{server.port}", "check")

    (found,) = [each for each in told["checks"] if each["name"] == "authentication"]
    assert found["verdict"] == "FAIL" and "token_file" in found["advice"]
