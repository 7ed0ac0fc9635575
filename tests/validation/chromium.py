"""A headless Chromium driven over its debugging pipe: no driver program, no port, nothing but the browser's package.

To look at every sample report: `python -m tests.validation.chromium FOLDER` writes pictures, light and dark, at a
desk's and at a phone's size.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install chromium-headless-shell"
DEADLINE_S = 60.0
"""A busy machine takes some seconds to start a browser; one page takes a tenth of one."""
DESK, PHONE = (1280, 800), (390, 844)


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser did not answer, or refused."""


@dataclass
class Page:
    """An open page: what it asked for and complained about, and a way to ask it."""

    browser: Browser
    session: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.browser.call("Runtime.evaluate", self.session, expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of what is seen without scrolling, or of the whole page."""
        shot = self.browser.call("Page.captureScreenshot", self.session, format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


class Browser:
    """One browser process; a context manager."""

    def __enter__(self) -> Browser:
        program = find()
        assert program, f"no Chromium on this machine: {INSTALL}"
        self._profile = tempfile.mkdtemp(prefix="klaster-chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        words = [program, *options, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *words],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._received, self._number, self._pages = b"", 0, dict[str, Page]()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path, size: tuple[int, int], *, dark: bool = False) -> Page:
        """Load a file at a window's size and wait for it; what it asked for and complained about is in the page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        phone = size == PHONE
        self.call(
            "Emulation.setDeviceMetricsOverride", session,
            width=size[0], height=size[1], deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self._loaded = False
        self.call("Page.navigate", session, url=path.resolve().as_uri())
        deadline = time.monotonic() + DEADLINE_S
        while not self._loaded:
            self._read(deadline)
        return page

    def close(self, page: Page) -> None:
        self.call("Page.close", page.session)

    def call(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its answer; BrowserError if it is refused or none comes."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _read(self, deadline: float) -> dict[str, Any]:
        """The next message; an event is noted in its page."""
        while b"\0" not in self._received:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"no answer in {DEADLINE_S:g} s")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise BrowserError("the browser ended")
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        page, about = self._pages.get(message.get("sessionId", "")), message.get("params", {})
        if page is None:
            return
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                page.requests.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                page.complaints.append(str(about["exceptionDetails"]))
            case "Log.entryAdded":
                page.complaints.append(about["entry"]["text"])
            case "Runtime.consoleAPICalled":
                page.complaints.append(str(about["args"]))


def main(folder: Path) -> None:
    """A picture of every sample report, at both sizes, light and dark; what is seen first, and the whole."""
    from tests.validation.sample_run import SAMPLES, write

    write(folder)
    with Browser() as browser:
        for name in SAMPLES:
            for word, size in (("desk", DESK), ("phone", PHONE)):
                for dark in (False, True):
                    page = browser.open(folder / f"{name}.html", size, dark=dark)
                    stem = f"{name}-{word}-{'dark' if dark else 'light'}"
                    page.picture(folder / f"{stem}.png")
                    page.picture(folder / f"{stem}-whole.png", whole=True)
                    browser.close(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
