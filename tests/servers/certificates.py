"""Throw-away certificates, by the command `openssl`: a CA, a server's for localhost, and clients'.

    certificates = make_certificates(tmp_path)                      a CA, and server.pem / server.key for localhost
    client = certificates.client("loader")                          loader.pem / loader.key, of the same CA
    stranger = make_certificates(tmp_path / "other").client("x")    of a CA that nobody here knows

PROMISE  Keys are of a curve, not RSA, so that making one takes milliseconds; all are good for one day, and lie in the
         directory that was given and nowhere else.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater.server.settings import TlsFiles

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    cert_file: Path
    key_file: Path


@dataclass(frozen=True)
class Certificates:
    """A CA, the server's certificate, and whatever clients' are asked for."""

    directory: Path
    ca_file: Path
    server: Certificate

    def tls(self, *, client_ca: bool = False) -> TlsFiles:
        """For a server; with `client_ca` whoever connects needs a certificate of this CA."""
        return TlsFiles(str(self.server.cert_file), str(self.server.key_file), str(self.ca_file) if client_ca else None)

    def client(self, name: str, *, alternative_name: str | None = None) -> Certificate:
        """A client's, with this common name; `alternative_name` like "DNS:loader.example"."""
        return _signed(self.directory, self.ca_file, name, alternative_name)


def make_certificates(directory: Path) -> Certificates:
    directory.mkdir(parents=True, exist_ok=True)
    ca_file = directory / "ca.pem"
    _openssl(
        "req", "-x509", *_CURVE, "-keyout", directory / "ca.key", "-out", ca_file, "-days", "1",
        "-subj", "/CN=a CA of a test", "-addext", "basicConstraints=critical,CA:TRUE",
    )  # fmt: skip
    names = "DNS:localhost,IP:127.0.0.1,IP:::1"
    return Certificates(directory, ca_file, _signed(directory, ca_file, "server", names))


def _signed(directory: Path, ca_file: Path, name: str, alternative_name: str | None) -> Certificate:
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    request = directory / f"{name}.csr"
    _openssl("req", *_CURVE, "-keyout", made.key_file, "-out", request, "-subj", f"/CN={name}")
    extensions = directory / f"{name}.ext"
    extensions.write_text(
        "basicConstraints=CA:FALSE\n" + (f"subjectAltName={alternative_name}\n" if alternative_name else "")
    )
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca_file, "-CAkey", directory / "ca.key", "-CAcreateserial",
        "-out", made.cert_file, "-days", "1", "-extfile", extensions,
    )  # fmt: skip
    made.key_file.chmod(0o600)
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
