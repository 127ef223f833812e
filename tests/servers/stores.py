"""Which real S3 servers a suite runs on: versitygw always, MinIO where HEADWATER_MINIO is set, as torture does.

@pytest.fixture(scope="module", params=store_kinds())
def server(request):
    with s3_server(request.param) as server, server.in_environment():
        yield server
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.minio import minio
from tests.servers.versitygw import S3Server, versitygw

SERVERS = {"versitygw": versitygw, "minio": minio}


def store_kinds() -> list[str]:
    return ["versitygw", "minio"] if os.environ.get("HEADWATER_MINIO") else ["versitygw"]


@contextmanager
def s3_server(kind: str) -> Iterator[S3Server]:
    with SERVERS[kind]() as server:
        yield server
