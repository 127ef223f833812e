"""Rows over HTTP, as curl or any other language would send them: durable when they are answered, once each."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import headwater as hw

with hw.open("data") as log:
    log.topic("orders", schema={"order_id": int, "amount": float})
with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
    listen, http = (f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
server = subprocess.Popen([sys.executable, "-m", "headwater", "serve", "data", "--listen", listen, "--http", http])


def post(path: str, body: bytes, **headers: str) -> dict[str, object]:
    request = urllib.request.Request(f"http://{http}{path}", body, headers)  # what `curl -d BODY URL` does
    with urllib.request.urlopen(request) as answer:
        return dict(json.load(answer))


while True:  # until it is ready: a service manager would ask the same
    try:
        urllib.request.urlopen(f"http://{http}/readyz").close()
        break
    except urllib.error.URLError:
        time.sleep(0.05)
key = {"Idempotency-Key": f"order-{time.time_ns()}"}
first = post("/v1/topics/orders/rows", b'{"order_id": 1, "amount": 9.5}', **key)
again = post("/v1/topics/orders/rows", b'{"order_id": 1, "amount": 9.5}', **key)
print(f"{first['rows']} row at LSN {first['lsn']}; sent again: duplicate {again['duplicate']}, LSN {again['lsn']}")
server.terminate()
print("the server ended with", server.wait())
