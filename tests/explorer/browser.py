"""Controls a headless Chromium through its debugging pipe (the DevTools protocol), with the
standard library only."""

import json
import os
import select
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"]
# Longer than any action of the browser takes, including its start.
PATIENCE_S = 120
KEYS = {"Tab": 9, "Enter": 13, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """A Chromium with one page and without network."""

    def __init__(self, program):
        self._profile = tempfile.TemporaryDirectory(prefix="farwrite-explorer-", ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The browser reads commands from descriptor 3 and answers on descriptor 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "chromium", program, *FLAGS,
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(commands, answers), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._buffer = b""
        self._session = None
        self.complaints = []
        self.requests = []
        target = self._page()
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def _page(self):
        """Return the page, which may open after the browser answers."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for target in self.call("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return target
            time.sleep(0.02)
        raise TimeoutError("the browser opens no page")

    def close(self):
        """End the browser and remove its profile."""
        try:
            self.call("Browser.close")
            self._process.wait(60)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._profile.cleanup()

    def call(self, method, timeout_s=PATIENCE_S, **params):
        """Run one command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer.get("method"), answer.get("params"))

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else None
            if data is None:
                raise TimeoutError("the browser does not answer")
            if not data:
                raise OSError("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params["args"])[:500])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def evaluate(self, expression):
        """Return the value of a JavaScript expression. If it is a promise, return the value of
        the promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:500])
        return result["result"].get("value")

    def wait(self, expression, timeout_s=PATIENCE_S):
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def open(self, url):
        """Load a page again, even if only the fragment differs, and wait until the page has its
        answers."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.body.dataset.answered !== undefined")

    def settled(self):
        """Wait until the answers belong to the settings in the link."""
        self.wait("document.body.dataset.answered !== undefined && document.body.dataset.answered === location.hash")

    def press(self, *keys):
        for key in keys:
            event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            if key == "Enter":
                event["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, element, text):
        """Replace the text of the text box with the id `element`, like typing."""
        self.evaluate(f"document.getElementById({json.dumps(element)}).select()")
        self.evaluate(f"document.getElementById({json.dumps(element)}).focus()")
        self.call("Input.insertText", text=text)

    def look(self, width, height, dark=False):
        """Set the size of the window, and whether the user prefers dark pages."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
