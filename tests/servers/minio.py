"""MinIO as a second opinion about what an S3 server does; a part of torture, because building it takes minutes.

    with minio() as server: ...     as tests/servers/versitygw.py

`HEADWATER_MINIO_PROGRAM` names a program that is there already.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.versitygw import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, go_program, s3_process

MINIO = "github.com/minio/minio@latest"


@contextmanager
def minio() -> Iterator[S3Server]:
    """A new server with an empty bucket, gone afterwards with all that was put there."""
    given = os.environ.get("HEADWATER_MINIO_PROGRAM")
    program = Path(given) if given else go_program("minio", MINIO)
    with tempfile.TemporaryDirectory(prefix="headwater-minio-", ignore_cleanup_errors=True) as home:
        data = Path(home) / "data"
        (data / BUCKET).mkdir(parents=True)  # a folder of its drive is a bucket
        command = [str(program), "server", "--quiet", "--address", "{address}", str(data)]
        settings = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off"}
        with s3_process(command, settings, data) as server:
            yield server
