"""A real browser for tests and pictures: headless Chromium, spoken to over a pipe (its DevTools protocol).

    with Chromium(tmp_path) as browser:
        browser.open("http://127.0.0.1:7071/", width=390, dark=True)
        browser.wait_for("document.querySelectorAll('#topics tbody tr').length")
        browser.errors, browser.asked         what the console complained of, and every address that was asked for

PROMISE  No host but this machine can be found by it.  It ends with the `with`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
ANSWER_S = 30.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """Where Chromium is, if it is."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Chromium:
    """One browser with one tab."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "chromium"
        self.errors: list[str] = []
        self.asked: list[str] = []
        self._number = 0
        self._rest = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._session = ""

    def __enter__(self) -> Self:
        path = found()
        assert path is not None, "chromium is not installed (Debian: apt-get install chromium)"
        heard, self._to = os.pipe()
        self._from, told = os.pipe()

        def places() -> None:
            # The protocol is read from descriptor 3 and written to 4; moved aside first, because they may be either.
            one, other = os.dup(heard), os.dup(told)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                [path, *_FLAGS, f"--user-data-dir={self._directory / 'profile'}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                preexec_fn=places,
                close_fds=False,
            )
        os.close(heard)
        os.close(told)
        os.set_blocking(self._from, False)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        os.close(self._to)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Go there, in a window of this size."""
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20.0) -> Any:
        """Until it is true; then what it is."""
        ends = time.monotonic() + seconds
        while True:
            value = self.ask(expression)
            if value:
                return value
            assert time.monotonic() < ends, f"it did not come to be so: {expression}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """A key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        given: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), **text}
        self._call("Input.dispatchKeyEvent", type="keyDown", **given)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def picture(self, *, whole: bool = False) -> bytes:
        """What is seen, as PNG; with `whole` all of the page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    # The protocol ------------------------------------------------------------------------------

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        ends = time.monotonic() + ANSWER_S
        while number not in self._answers:
            assert time.monotonic() < ends, f"chromium does not answer to {method}"
            self._hear()
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _hear(self) -> None:
        try:
            data = os.read(self._from, 1 << 20)
        except BlockingIOError:
            time.sleep(0.005)
            return
        assert data, f"chromium has ended: {(self._directory / 'stderr').read_text()[-2000:]}"
        *whole, self._rest = (self._rest + data).split(b"\0")
        for each in whole:
            self._heard(json.loads(each))

    def _heard(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case None:
                self._answers[message["id"]] = message
            case "Runtime.exceptionThrown":
                self.errors.append(str(given["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if given["type"] in {"error", "warning", "assert"}:
                self.errors.append(str(given["args"]))
            case "Log.entryAdded" if given["entry"]["level"] in {"error", "warning"}:
                self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.asked.append(given["request"]["url"])
            case _:
                pass
