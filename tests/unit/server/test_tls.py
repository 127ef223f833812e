"""A server's PEM files: what is wrong with them is named before anybody listens; handshakes show who is who."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from headwater.errors import InvalidRequest
from headwater.server.settings import TlsFiles
from headwater.server.tls import certificate_identity, load_tls, server_context
from tests.servers.certificates import Certificate, Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_good_files_are_read_whole(certificates: Certificates) -> None:
    loaded = load_tls(certificates.tls(client_ca=True))

    assert loaded.certificate == certificates.server.cert_file.read_bytes()
    assert loaded.key == certificates.server.key_file.read_bytes()
    assert loaded.client_ca == certificates.ca_file.read_bytes()
    assert load_tls(certificates.tls()).client_ca is None


def test_a_key_is_never_shown(certificates: Certificates) -> None:
    assert "KEY" not in repr(load_tls(certificates.tls()))


@pytest.mark.parametrize("which", ["cert_file", "key_file", "client_ca_file"])
def test_a_file_that_is_not_there_is_named(certificates: Certificates, tmp_path: Path, which: str) -> None:
    files = vars(certificates.tls(client_ca=True)) | {which: str(tmp_path / "missing.pem")}

    with pytest.raises(InvalidRequest, match=r"missing\.pem"):
        load_tls(TlsFiles(**files))


@pytest.mark.parametrize("which", ["cert_file", "key_file", "client_ca_file"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no PEM file"),
        ("hello", "no PEM file"),
        ("-----BEGIN CERTIFICATE-----\nPRIVATE KEY\n", "damaged|can be read"),
    ],
)
def test_a_file_that_is_no_pem_of_its_kind_is_named(
    certificates: Certificates, tmp_path: Path, which: str, text: str, said: str
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text(text)
    files = vars(certificates.tls(client_ca=True)) | {which: str(wrong)}

    with pytest.raises(InvalidRequest, match=r"wrong\.pem") as refused:
        load_tls(TlsFiles(**files))

    assert re.search(said, str(refused.value))


def test_a_directory_is_no_file(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load_tls(TlsFiles(str(tmp_path), str(certificates.server.key_file)))


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    other = certificates.client("other")

    with pytest.raises(InvalidRequest, match="is not the one of the certificate"):
        load_tls(TlsFiles(str(certificates.server.cert_file), str(other.key_file)))


def test_an_encrypted_key_is_refused_and_nobody_is_asked(certificates: Certificates, tmp_path: Path) -> None:
    encrypted = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(certificates.server.key_file)]
    subprocess.run([*command, "-out", str(encrypted)], check=True, capture_output=True)

    with pytest.raises(InvalidRequest, match="nobody is there to give its password"):
        load_tls(TlsFiles(str(certificates.server.cert_file), str(encrypted)))


def test_a_key_that_others_can_read_is_warned_about(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = shutil.copy(certificates.server.key_file, tmp_path / "open.key")
    Path(key).chmod(0o644)

    with caplog.at_level(logging.WARNING):
        load_tls(TlsFiles(str(certificates.server.cert_file), str(key)))
        load_tls(certificates.tls())

    assert [record.getMessage() for record in caplog.records if "chmod 600" in record.getMessage()] == [
        f"the key file {key} can be read by others than its owner: chmod 600 it"
    ]


def shake_hands(server: ssl.SSLContext, ca_file: Path, client: Certificate | None) -> tuple[str | None, str | None]:
    """(the identity that the server saw, the protocol that both agreed on)."""
    mine, theirs = socket.socketpair()
    context = ssl.create_default_context(cafile=str(ca_file))
    context.set_alpn_protocols(["h2"])
    if client is not None:
        context.load_cert_chain(client.cert_file, client.key_file)
    seen: list[tuple[str | None, str | None]] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as wrapped:
                seen.append((certificate_identity(wrapped.getpeercert() or {}), wrapped.selected_alpn_protocol()))
                wrapped.sendall(b"x")
        except ssl.SSLError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(mine, server_hostname="localhost") as wrapped:
            assert wrapped.recv(1) == b"x", "the server hung up"
    finally:
        mine.close()
        thread.join(10)
    return seen[0]


def test_a_certificate_is_known_by_its_first_alternative_name_else_by_its_common_name(
    certificates: Certificates,
) -> None:
    server = server_context(certificates.tls(client_ca=True), "h2")
    plain = certificates.client("loader")
    named = certificates.client("named", alternative_name="DNS:loader.example,URI:spiffe://example/loader")

    assert shake_hands(server, certificates.ca_file, plain) == ("loader", "h2")
    assert shake_hands(server, certificates.ca_file, named) == ("loader.example", "h2")
    assert certificate_identity({}) is None
    assert certificate_identity({"subject": ((("organizationName", "x"),),)}) is None


def test_whoever_has_no_certificate_of_the_client_ca_is_not_heard(certificates: Certificates, tmp_path: Path) -> None:
    server = server_context(certificates.tls(client_ca=True), "h2")
    stranger = make_certificates(tmp_path).client("stranger")

    for client in (None, stranger):
        with pytest.raises((ssl.SSLError, OSError)):
            shake_hands(server, certificates.ca_file, client)
    without = server_context(certificates.tls(), "h2")
    assert shake_hands(without, certificates.ca_file, None) == (None, "h2")
