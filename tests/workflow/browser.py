"""A browser without a window, driven through its debugging pipe: what a page is once it is shown."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 30.0


def found():
    """Return the path of Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def check_first_screens(chromium, path):
    """Assert that verdict, curve and estimates of a report stand on the first screen, or on two small ones."""
    ends = "['.verdict', '.first img', '.estimates'].map(s => document.querySelector('#glance ' + s)"
    for width, height, screens in ((1280, 900, 1), (390, 844, 2)):
        chromium.open(path, width=width, height=height)
        bottoms = chromium.of(f"{ends}.getBoundingClientRect().bottom)")
        assert max(bottoms) <= screens * height, (width, bottoms)
        rows = chromium.of("[...document.querySelectorAll('.estimates tbody tr')].map(r => r.offsetHeight)")
        assert rows
        assert max(rows) < 30, "a line each"
        wide = chromium.of("(e => e.scrollWidth - e.clientWidth)(document.querySelector('.estimates .scroll'))")
        assert wide <= 0, "nothing is cut"


class Browser:
    """Chromium, with one page at a time."""

    def __init__(self, path):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
                   "--disable-dev-shm-usage",
                   f"--user-data-dir={self._profile.name}"]  # fmt: skip

        def as_3_and_4():
            given, taken = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(given, 3)
            os.dup2(taken, 4)

        self._process = subprocess.Popen(
            [path, *options, "about:blank"], pass_fds=(3, 4), preexec_fn=as_3_and_4,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._count, self._session, self.heard = b"", itertools.count(1), None, []

    def close(self):
        os.close(self._out)
        os.close(self._in)
        self._process.kill()
        self._process.wait()
        self._profile.cleanup()

    def _message(self, until):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._in, 65536) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self._buffer += part
        one, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(one)

    def _wait(self, fits):
        until = time.monotonic() + PATIENCE
        while True:
            message = self._message(until)
            self.heard.append(message)
            if fits(message):
                return message

    def call(self, method, **params):
        """Return what a method of the debugging protocol answers."""
        number = next(self._count)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda m: m.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path, width=1280, height=900, dark=False):
        """Show a file in a new page."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.heard.clear()
        self.call("Page.navigate", url=path.as_uri())
        if not any(m.get("method") == "Page.loadEventFired" for m in self.heard):
            self._wait(lambda m: m.get("method") == "Page.loadEventFired")

    def of(self, script):
        """Return the value of a script on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requests(self):
        """Return the addresses that the page asked for, without images that it holds itself (some report them)."""
        asked = [m["params"]["request"]["url"] for m in self.heard if m.get("method") == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith("data:")]

    def complaints(self):
        """Return what stands in the console."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [m for m in self.heard if m.get("method") in kinds]

    def click(self, selector):
        """Click on an element with the mouse."""
        box = self.of(f"(e => "
            f"{{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const b = e.getBoundingClientRect(); "
                      f"return [b.x + b.width / 2, b.y + b.height / 2]; "
                          f"}})(document.querySelector({json.dumps(selector)}))")  # fmt: skip
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key, code):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text="\r" if key == "Enter" and kind == "keyDown" else "")  # fmt: skip
