"""Tokens: made, kept as digests, let in, revoked while a server looks; what happens to a file that cannot be read."""

from __future__ import annotations

import errno
import json
import threading
import time
from pathlib import Path
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import Conflict, CorruptData, InvalidRequest, Unauthenticated, Unavailable, UnknownFormat
from headwater.server import tokens
from headwater.server.access import OpenAccess, parse_grant
from headwater.server.settings import ServerSettings, TlsFiles
from headwater.server.tokens import BELIEVED_S, FILE, TokenAccess
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import SimulatedStore

READ = (parse_grant("read:orders"),)


def bucket() -> BucketFiles:
    return BucketFiles(SimulatedStore(), threads=False)


@pytest.fixture(params=["disk", "bucket", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "disk":
        return DiskFiles(tmp_path / "data")
    return bucket() if request.param == "bucket" else SimulatedFiles()


def access_to(files: Files, clock: ManualClock | None = None) -> TokenAccess:
    return TokenAccess(files, clock=clock if clock is not None else ManualClock(), look_s=None)


def put(files: Files, data: bytes) -> None:
    files.make_directory("")
    if FILE in files.list(""):
        files.unlink(FILE)
    file = files.create(FILE)
    file.append([data])
    file.sync_all()
    file.close()


def content(files: Files) -> bytes:
    file = files.open(FILE)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_a_token_lets_its_principal_in_with_what_it_was_granted(files: Files) -> None:
    token = tokens.create(files, "loader", (parse_grant("write:orders.*"), *READ))

    principal = access_to(files).authenticate(f"Bearer {token}", None)

    assert principal.name == "loader"
    assert principal.may("write", "orders.eu") and principal.may("read", "orders")
    assert not principal.may("write", "orders") and not principal.may_any("admin")


def test_a_token_has_256_random_bits_and_only_its_digest_is_kept(files: Files) -> None:
    token = tokens.create(files, "loader", READ, entropy=lambda size: bytes(range(size)))

    assert token == "hw_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    kept = content(files)
    assert token.encode() not in kept and token.removeprefix("hw_").encode() not in kept
    assert json.loads(kept)["principals"][0]["digest"] == tokens.digest_of(token)


@pytest.mark.parametrize(
    "header",
    ["Bearer wrong", "Bearer ", "Bearer", "", "{token}", "Basic {token}", "Bearer {token}x", "Bearer x{token}",
     "Bearer {token} x", "Bearer \N{SNOWMAN}", "Bearer " + "x" * 10_000, "Bearer {digest}",
     "Bearer {token}" + " " * 1_000],
)  # fmt: skip
def test_a_wrong_header_lets_nobody_in_and_is_not_told_back(header: str) -> None:
    files = SimulatedFiles()
    token = tokens.create(files, "loader", READ)
    header = header.replace("{token}", token).replace("{digest}", tokens.digest_of(token))

    with pytest.raises(Unauthenticated) as refused:
        access_to(files).authenticate(header, None)

    assert token not in str(refused.value) and len(str(refused.value)) < 200


def test_the_scheme_may_be_written_in_any_case() -> None:
    files = SimulatedFiles()
    token = tokens.create(files, "loader", READ)

    assert access_to(files).authenticate(f"bearer {token}", None).name == "loader"


def test_a_wrong_token_is_not_made_good_by_a_right_certificate() -> None:
    files = SimulatedFiles()
    tokens.create(files, "loader", READ, certificate="loader.example")

    with pytest.raises(Unauthenticated):
        access_to(files).authenticate("Bearer wrong", "loader.example")


def test_a_certificate_is_a_principal_without_a_token(files: Files) -> None:
    assert tokens.create(files, "loader", READ, certificate="loader.example") == ""

    access = access_to(files)

    assert access.authenticate(None, "loader.example").name == "loader"
    for certificate in ("loader", "LOADER.EXAMPLE", "other.example"):
        with pytest.raises(Unauthenticated, match="--certificate"):
            access.authenticate(None, certificate)
    with pytest.raises(Unauthenticated):
        access.authenticate("Bearer ", None)


@pytest.mark.parametrize("certificate", [None, ""])
def test_who_shows_nothing_is_told_what_to_show(certificate: str | None) -> None:
    files = SimulatedFiles()
    tokens.create(files, "loader", READ)

    with pytest.raises(Unauthenticated, match="HEADWATER_TOKEN_FILE"):
        access_to(files).authenticate(None, certificate)


def test_where_no_token_was_ever_made_nobody_is_let_in(files: Files) -> None:
    with pytest.raises(Unauthenticated):
        access_to(files).authenticate("Bearer hw_x", "somebody")


def test_a_new_token_and_a_revoked_one_count_after_the_next_look(files: Files) -> None:
    access = access_to(files)
    token = tokens.create(files, "loader", READ)
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {token}", None)

    access.look()
    assert access.authenticate(f"Bearer {token}", None).name == "loader"

    tokens.revoke(files, "loader")
    access.look()
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {token}", None)


def test_a_server_looks_by_itself(tmp_path: Path) -> None:
    access = TokenAccess(DiskFiles(tmp_path), look_s=0.01)
    try:
        token = tokens.create(DiskFiles(tmp_path), "loader", READ)

        waited = threading.Event()
        for _ in range(500):
            try:
                assert access.authenticate(f"Bearer {token}", None).name == "loader"
                break
            except Unauthenticated:
                waited.wait(0.01)
        else:
            pytest.fail("the token was not seen within 5 s")
    finally:
        access.close()
    assert not any(thread.name == "headwater-tokens" for thread in threading.enumerate())


def test_a_token_is_good_until_it_expires() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    token = tokens.create(files, "loader", READ, expires_s=60.0, clock=clock)
    tokens.create(files, "other", READ, certificate="other", expires_s=60.0, clock=clock)
    access = access_to(files, clock)

    clock.advance(59.0)
    assert access.authenticate(f"Bearer {token}", None).name == "loader"

    clock.advance(1.0)
    access.look()
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {token}", None)
    with pytest.raises(Unauthenticated):
        access.authenticate(None, "other")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"principals": []}',
        b'{"format": 1, "principals": 3}',
        b'{"format": 1, "principals": [{"name": "x"}]}',
        b'{"format": 1, "principals": [{"name":"x","digest":"","certificate":"","grants":["x:*"],"created_us":1}]}',
        b'{"format": 1, "principals": [{"name":"x","digest":"","certificate":"","grants":[],"created_us":1,"z":1}]}',
    ],
)
def test_a_damaged_file_is_named_and_lets_no_server_start(data: bytes) -> None:
    files = SimulatedFiles()
    put(files, data)

    with pytest.raises(CorruptData, match=FILE):
        access_to(files)
    with pytest.raises(CorruptData, match=FILE):
        tokens.create(files, "loader", READ)
    assert content(files) == data


def test_a_file_of_a_later_version_is_not_guessed_at() -> None:
    files = SimulatedFiles()
    put(files, b'{"format": 2, "principals": {"something": "else"}}')

    with pytest.raises(UnknownFormat):
        access_to(files)


def test_a_file_that_can_no_longer_be_read_is_believed_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    files, clock = SimulatedFiles(), ManualClock()
    token = tokens.create(files, "loader", READ, clock=clock)
    good = content(files)
    access = access_to(files, clock)

    put(files, b"damaged")
    clock.advance(BELIEVED_S)
    access.look()
    access.look()
    assert access.authenticate(f"Bearer {token}", None).name == "loader"
    assert [record.levelname for record in caplog.records] == ["ERROR"], "said once, not at every look"
    clock.advance(0.1)
    with pytest.raises(Unavailable, match=FILE):
        access.authenticate(f"Bearer {token}", None)

    put(files, good)
    access.look()
    assert access.authenticate(f"Bearer {token}", None).name == "loader"
    assert token not in caplog.text and tokens.digest_of(token) not in caplog.text


def test_a_name_is_taken_once_and_free_again_when_it_is_revoked(files: Files) -> None:
    first = tokens.create(files, "loader", READ)
    with pytest.raises(InvalidRequest, match="revoke it first"):
        tokens.create(files, "loader", READ)
    assert access_to(files).authenticate(f"Bearer {first}", None).name == "loader"

    tokens.revoke(files, "loader")
    second = tokens.create(files, "loader", READ)

    access = access_to(files)
    assert access.authenticate(f"Bearer {second}", None).name == "loader"
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {first}", None)


def test_a_certificate_is_one_principals(files: Files) -> None:
    tokens.create(files, "loader", READ, certificate="x.example")

    with pytest.raises(InvalidRequest, match="another principal's"):
        tokens.create(files, "other", READ, certificate="x.example")


@pytest.mark.parametrize("name", ["", ".x", "a b", "a\nb", "x" * 101, "-x", "\N{SNOWMAN}"])
def test_a_name_that_could_be_mistaken_in_a_log_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        tokens.create(SimulatedFiles(), name, READ)


def test_a_token_that_allows_nothing_is_not_made() -> None:
    with pytest.raises(InvalidRequest, match="--allow"):
        tokens.create(SimulatedFiles(), "loader", ())


def test_revoking_what_is_not_there_is_refused(files: Files) -> None:
    with pytest.raises(InvalidRequest, match="token list"):
        tokens.revoke(files, "loader")


def test_two_who_change_the_tokens_at_once_lose_nothing(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    held = files.lock(tokens.LOCK, "somebody else")
    try:
        with pytest.raises(Conflict, match="run the command again"):
            tokens.create(DiskFiles(tmp_path), "loader", READ)
    finally:
        held.release()

    tokens.create(files, "loader", READ)
    assert [each.name for each in tokens.read_principals(files)] == ["loader"]


def test_a_writer_that_was_killed_leaves_the_old_file_and_its_rest_is_no_obstacle(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    tokens.create(files, "first", READ)
    (tmp_path / (FILE + tokens.TEMPORARY)).write_bytes(b"half of a fi")

    tokens.create(files, "second", READ)

    assert [each.name for each in tokens.read_principals(files)] == ["first", "second"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, tokens.LOCK]


def test_a_made_token_survives_any_power_loss() -> None:
    files = SimulatedFiles()
    tokens.create(files, "first", READ)
    tokens.create(files, "second", READ)

    for state in files.crash_states(Random(7), limit=50):
        assert [each.name for each in tokens.read_principals(state)] == ["first", "second"]


@pytest.mark.parametrize("call", range(1, 12))
def test_a_power_loss_while_a_token_is_made_leaves_the_others_as_they_were(call: int) -> None:
    files = SimulatedFiles()
    tokens.create(files, "first", READ)
    files.fail(call, errno.EIO)
    try:
        tokens.create(files, "second", READ)
        failed = False
    except (OSError, Conflict):
        failed = True
    files.heal()

    for state in files.crash_states(Random(call), limit=20):
        found = [each.name for each in tokens.read_principals(state)]
        assert found in (["first"], ["first", "second"])
        assert failed or found == ["first", "second"]


def test_there_are_not_more_principals_than_a_look_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "PRINCIPALS_MAX", 1)
    files = SimulatedFiles()
    tokens.create(files, "first", READ)

    with pytest.raises(InvalidRequest, match="too many"):
        tokens.create(files, "second", READ)


def test_settings_say_whether_anybody_is_asked_who_calls() -> None:
    files = SimulatedFiles()

    assert isinstance(tokens.open_access(ServerSettings(), files), OpenAccess)
    assert isinstance(tokens.open_access(ServerSettings(tls=TlsFiles("c", "k")), files), OpenAccess)
    for settings in (ServerSettings(tokens=True), ServerSettings(tls=TlsFiles("c", "k", "ca"))):
        access = tokens.open_access(settings, files)
        assert isinstance(access, TokenAccess)
        access.close()


def test_a_look_is_cheap_and_authentication_reads_no_file() -> None:
    files = SimulatedFiles()
    token = tokens.create(files, "loader", READ)
    access = access_to(files)
    files.unlink(FILE)

    began = time.perf_counter()
    for _ in range(1_000):
        access.authenticate(f"Bearer {token}", None)

    assert time.perf_counter() - began < 1.0
