"""The page over a folder that is still being written, for a browser on this machine.

Two addresses are answered, `/` and `/state`, both worked out from the finished runs; no file is served by its name, so
nothing outside the folder can be asked for, and nothing is written. It listens on the loopback interface only, and
answers only requests that name it, so that no other web page can read results through a name it made up.
"""

import errno
import hashlib
import json
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mixerscope.errors import MixerscopeError, UserError
from mixerscope.report.data import gather
from mixerscope.report.page import render
from mixerscope.results import load_runs
from mixerscope.store import Seal
from mixerscope.store.upkeep import overview

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
LARGEST_PORT = 65535
PAUSE = 5.0
"""Seconds between two pages at least, and this many times what the last one took to make."""
TIMES = 4
WAITING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="3"><title>Mixerscope: no run is finished yet</title>
<link rel="icon" href="data:,"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.55 system-ui, sans-serif; margin: 12vh auto; max-width: 36em; padding: 0 24px; }}
</style></head>
<body><main><h1>No run is finished yet</h1>
<p>{making} in the making. The page is here as soon as the first is done.</p></main></body></html>
"""
"""In the place of a page, where a sweep has just begun."""


class Live:
    """The newest page of a folder. It is made again when somebody asks and a run, or an analysis, was finished."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root, self._clock = root, clock
        self._lock = threading.Lock()
        self._again = 0.0
        self.left_out: list[str] = []
        self.runs = 0
        self._seen = ""
        self._page = b""
        self._make()

    def page(self) -> bytes:
        """As HTML; the last one that could be made where runs are changing under our eyes."""
        with self._lock:
            if self._clock() >= self._again and self._fingerprint() != self._seen:
                try:
                    self._make()
                except MixerscopeError as error:
                    self.left_out = [str(error)]
            return self._page

    def state(self) -> bytes:
        """As JSON: which page is the newest, and how far the folder is, in words."""
        found = overview(self.root)
        said = [f"{found.finished} run{'' if found.finished == 1 else 's'} finished"]
        said += [f"{len(found.making)} in the making"] if found.making else []
        said += [f"{len(found.failed)} cohorts failed"] if found.failed else []
        said += [f"{len(self.left_out)} damaged and left out"] if self.left_out else []
        newest = self._fingerprint() if self._clock() >= self._again else self._seen
        return json.dumps({"page": newest, "said": ", ".join(said)}).encode()

    def _make(self) -> None:
        begun = self._clock()
        seen, damaged = self._fingerprint(), []
        if (making := len(overview(self.root).making)) and not self._seals():
            self._page, self._again = (
                WAITING.format(making=f"{making} run{'s are' if making > 1 else ' is'}").encode(),
                0.0,
            )
            return
        groups = gather(load_runs(self.root, damaged))
        self._page = render(groups, live=seen).encode()
        self.runs, self.left_out, self._seen = sum(len(group.models) for group in groups), damaged, seen
        now = self._clock()
        self._again = now + max(PAUSE, TIMES * (now - begun))

    def _seals(self) -> list[Path]:
        return [path for pattern in ("", "*/", "*/*/") for path in self.root.glob(pattern + Seal.file)]

    def _fingerprint(self) -> str:
        """Of all seals, which are written last: it changes when a run or an analysis is finished, or made anew."""
        found = hashlib.sha256()
        for path in sorted(self._seals()):
            try:
                about = path.stat()
            except OSError:
                continue  # it is being made anew
            found.update(f"{path}\0{about.st_mtime_ns}\0{about.st_size}\n".encode(errors="surrogateescape"))
        return found.hexdigest()[:16]


class _Answers(BaseHTTPRequestHandler):
    """Answers to GET and HEAD."""

    server_version = "mixerscope"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        if (self.headers.get("Host") or "").rpartition(":")[0] not in NAMES:
            return self.send_error(HTTPStatus.FORBIDDEN, "ask for 127.0.0.1")
        path = self.path.partition("?")[0]
        if path not in ("/", "/state"):
            return self.send_error(HTTPStatus.NOT_FOUND)
        assert isinstance(self.server, PageServer)
        body = self.server.live.page() if path == "/" else self.server.live.state()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8" if path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants a line for every poll."""


class PageServer(ThreadingHTTPServer):
    """Serves one folder until it is shut down."""

    daemon_threads = True

    def __init__(self, root: Path, port: int) -> None:
        if not 0 <= port <= LARGEST_PORT:
            raise UserError(f"port = {port} should lie between 0, for any that is free, and {LARGEST_PORT}")
        self.live = Live(root)
        try:
            super().__init__((LOOPBACK, port), _Answers)
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
            raise UserError(f"port {port} {why}; take another with --port, or --port 0 for any that is free") from error

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/"
