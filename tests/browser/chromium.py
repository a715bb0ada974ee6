"""A real Chromium, driven over its debugging pipe: no driver program, no network port."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

# For one answer; a browser on a busy machine is slow to start.
DEADLINE = 60.0
# The browser reads from number 3 and writes to number 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _above(fd: int) -> int:
    """The same pipe under a number that the browser's two fixed ones cannot overwrite."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return high


class Browser:
    """One page.  `evaluate` runs an expression in it, also where the page's own policy forbids scripts."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        from_us, self._to_browser = os.pipe()
        self._to_us, from_browser = os.pipe()
        ends = [_above(from_us), _above(from_browser)]
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _START, *map(str, ends), PROGRAM,
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in ends:
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        try:
            self._attach()
        except BaseException:
            self.close()
            raise
        return self

    def _attach(self) -> None:
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and wait until it has."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to_browser)
        os.close(self._to_us)

    def screen(self, width: int, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """The size of the window and what the page is told about it."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, url: str) -> None:
        """Go to a page and wait until it has loaded."""
        self._ask("Page.navigate", url="about:blank")
        self._ask("Page.navigate", url=url)
        until = time.monotonic() + DEADLINE
        while self.evaluate("document.readyState + ' ' + location.protocol") != "complete file:":
            if time.monotonic() > until:
                raise TimeoutError(f"{url} did not load")
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, whole: bool = False) -> bytes:
        """PNG of the window, or of the whole page."""
        return base64.b64decode(self._ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self._ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + DEADLINE
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            if answer.get("method") == "Log.entryAdded":
                self.complaints.append(answer["params"]["entry"]["text"])

    def _receive(self, until: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._to_us], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            received = os.read(self._to_us, 1 << 20)
            if not received:
                raise RuntimeError("the browser has gone")
            self._buffer += received
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)
