"""TLS: the PEM files of a server, checked before it listens, and whose certificate a client showed.

IDENTITY A client certificate is known by its first subject alternative name, and by its common name where it has none:
         that is gRPC's rule for a peer's identity, and ours on every port.
PROMISE  A file that is missing, unreadable, no PEM, or a key that is not the certificate's, is named before the server
         listens.  No byte of a key is in a message.
NOT HERE Renewal: a server reads its files once; start it again for new ones.
"""

from __future__ import annotations

import logging
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import InvalidRequest
from headwater.protocol.credential_files import read_credential
from headwater.server.settings import TlsFiles

logger = logging.getLogger("headwater.server")


@dataclass(frozen=True, repr=False)
class LoadedTls:
    """What the files hold."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


def load_tls(files: TlsFiles) -> LoadedTls:
    """Read the files and try them; InvalidRequest names the one that is wrong."""
    loaded = LoadedTls(
        _read(files.cert_file, "certificate", b"BEGIN CERTIFICATE"),
        _read(files.key_file, "key", b"PRIVATE KEY"),
        None if files.client_ca_file is None else _read(files.client_ca_file, "client CA", b"BEGIN CERTIFICATE"),
    )
    _warn_of_readers(files.key_file)
    _context(files)
    return loaded


def server_context(files: TlsFiles, *protocols: str) -> ssl.SSLContext:
    """For a socket of ours that speaks these protocols (`h2`, `http/1.1`); with a client CA, whoever connects needs a
    certificate of it.  InvalidRequest as load_tls."""
    load_tls(files)
    context = _context(files)
    context.set_alpn_protocols(list(protocols))
    return context


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(
            Path(files.cert_file).expanduser(),
            Path(files.key_file).expanduser(),
            password=_no_password(files.key_file),
        )
    except (ssl.SSLError, OSError) as error:
        raise InvalidRequest(
            f"the key {files.key_file} is not the one of the certificate {files.cert_file}, or one of them is damaged: "
            f"{_reason(error)}"
        ) from error
    if files.client_ca_file is not None:
        try:
            context.load_verify_locations(Path(files.client_ca_file).expanduser())
        except (ssl.SSLError, OSError) as error:
            raise InvalidRequest(
                f"the client CA {files.client_ca_file} holds no certificate that can be read: {_reason(error)}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def certificate_identity(certificate: Mapping[str, Any]) -> str | None:
    """The identity of a certificate as `ssl.SSLSocket.getpeercert` describes it; None where it has none."""
    for _, name in certificate.get("subjectAltName", ()):
        return str(name)
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


def _read(path: str, what: str, marker: bytes) -> bytes:
    data = read_credential(path, f"the {what} file {path}")
    if marker not in data:
        raise InvalidRequest(f"the {what} file {path} is no PEM file of a {what}: it has no line {marker.decode()!r}")
    return data


def _warn_of_readers(path: str) -> None:
    mode = Path(path).expanduser().stat().st_mode
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        # Not refused: a secret that a container mounts is often so, and nobody else is in there.
        logger.warning("the key file %s can be read by others than its owner: chmod 600 it", path)


def _no_password(path: str) -> Any:
    def refuse() -> str:
        raise InvalidRequest(f"the key file {path} is encrypted, and nobody is there to give its password")

    return refuse


def _reason(error: OSError) -> str:
    return error.reason if isinstance(error, ssl.SSLError) and error.reason else (error.strerror or "unknown")
