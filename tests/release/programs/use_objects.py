"""`objects`: a log in a bucket of a real S3 server, which HEADWATER_VERSITYGW names."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import headwater as hw

gateway = os.environ.get("HEADWATER_VERSITYGW", "")
if not gateway:
    print("no S3 server here: HEADWATER_VERSITYGW names versitygw's program")
    sys.exit(77)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
credentials = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ALLOW_HTTP": "true"}
os.environ.update(credentials | {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
with tempfile.TemporaryDirectory() as root:
    (Path(root) / "bucket").mkdir()
    command = [gateway, "--quiet", "--port", f"127.0.0.1:{port}", "posix", root]
    rooted = {**os.environ, "ROOT_ACCESS_KEY": "key", "ROOT_SECRET_KEY": "secret"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=rooted) as process:
        try:
            for _ in range(100):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            with hw.open("s3://bucket/log") as log:
                orders = log.topic("orders", schema={"order_id": int})
                orders.append([{"order_id": 1}])
            with hw.open("s3://bucket/log") as log:
                assert log["orders"].read().to_pylist() == [{"order_id": 1}]
        finally:
            process.terminate()
print("a log in a bucket, closed, opened and read")
