"""`server`: a server, a client, rows there and back, and its health over HTTP."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request

import headwater as hw

with subprocess.Popen(
    ["headwater", "serve", "served", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "error"],
    stdout=subprocess.PIPE,
    text=True,
) as process:
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address, http = re.search(r" on (\S+), HTTP on (\S+)$", ready.strip()).groups()  # type: ignore[union-attr]
        with hw.connect(address) as log:
            orders = log.topic("orders", schema={"order_id": int})
            orders.append([{"order_id": 1}])
            assert orders.read().to_pylist() == [{"order_id": 1}]
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
            assert b"headwater_append_rows_total" in answer.read()
        with urllib.request.urlopen(f"http://{http}/", timeout=10) as page:
            assert b"<html" in page.read().lower()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)
assert code == 0, code
print("served, connected, appended and read; metrics and the page")
