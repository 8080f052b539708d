"""A headless Chromium, driven by its own driver (WebDriver) with no more than the standard library."""

import base64
import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import free_port

# It is root in containers, and talks to nobody but the page.
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Browser:
    """``width`` and ``height`` in pixels."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._size = f"--window-size={width},{height}"
        self._port = free_port()
        self._session = ""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(self._is_up, "a driver of Chromium")
            flags = [*_FLAGS, self._size, f"--user-data-dir={self._folder.name}"]
            logs = {"browser": "ALL"}
            asked = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": logs}
            found = self._ask("POST", "/session", capabilities={"alwaysMatch": asked})
            self._session = f"/session/{found['sessionId']}"
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            self._ask("DELETE", self._session)
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._folder.cleanup()

    def go(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", url=url)

    def run(self, script: str) -> Any:
        """What the body of a function returns."""
        return self._ask("POST", f"{self._session}/execute/sync", script=script, args=[])

    def press(self, keys: str) -> None:
        """On what has the focus. The arrows and the like are code points of WebDriver, such as U+E015."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask(
            "POST", f"{self._session}/actions", actions=[{"type": "key", "id": "keys", "actions": actions}]
        )

    def resize(self, width: int, height: int) -> None:
        """The page has so many pixels, as on a phone, whatever window a desktop would have."""
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._command("Emulation.setEmulatedMedia", features=[feature])

    def names(self) -> list[tuple[str, str]]:
        """The role and the name of whatever a screen reader meets."""
        nodes = self._command("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def _command(self, name: str, **parameters: Any) -> Any:
        """Of the DevTools protocol."""
        return self._ask("POST", f"{self._session}/goog/cdp/execute", cmd=name, params=parameters)

    def log(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self._ask("POST", f"{self._session}/se/log", type="browser")]

    def screenshot(self, path: Path) -> None:
        """Of the whole page."""
        found = self._command("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _is_up(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except URLError:
            return False

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return json.load(answer)["value"]
