"""A planted secret, and whether it has leaked: into files, texts, or anything else that came of a run.

    leaks([token], tmp_path / "data", server.log_path, str(error), page)  -> sentences, one for each place; [] is good

PROMISE  A secret is found as it is, in hex, in base64, quoted as in a URL, and by any long part of it: whoever shortens
         one for a message has leaked it all the same.
NOT HERE What is kept on purpose: the digest of a token, which is no secret (server/tokens.py).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

PART = 12
"""So many characters in a row of a secret are a leak."""


def leaks(secrets: Iterable[str], *places: Path | str | bytes) -> list[str]:
    """Where any of these secrets is, in any form; a directory is looked at with all that is below it."""
    forms = {form: secret for secret in secrets for form in _forms(secret)}
    assert forms, "nothing to look for would find nothing"
    return [
        f"{name} holds a part of the secret {secret[:6]}…"
        for name, data in _contents(places)
        for secret in {secret for form, secret in forms.items() if form in data}
    ]


def _contents(places: Iterable[Path | str | bytes]) -> Iterable[tuple[str, bytes]]:
    for number, place in enumerate(places):
        if isinstance(place, Path):
            for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
                if path.is_file():
                    yield str(path), path.read_bytes()
                yield f"the name {path}", str(path).encode()
        else:
            yield f"text {number}", place if isinstance(place, bytes) else place.encode()


def _forms(secret: str) -> set[bytes]:
    assert len(secret) > PART, "a short secret would be found by chance"
    parts = [secret[at : at + PART] for at in range(len(secret) - PART + 1)]
    found = {form.encode() for part in parts for form in (part, quote(part, safe=""))}
    raw = secret.encode()
    found.add(raw.hex().encode())
    # The three ways in which base64 can begin within a longer text, without their ragged ends.
    for shift in range(3):
        found.add(base64.b64encode(bytes(shift) + raw)[4:-4])
    return found
