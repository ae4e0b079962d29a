"""A hub of models on loopback, which can cut a file off, lie about it, redirect, refuse and be slow to answer."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "6037ea07e3abfe599ad00d418968bcf9656e7472"
REPOSITORY = "someone/some-model"


@dataclass
class FakeHub:
    """``files`` of one repository; the other fields say what goes wrong."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list[int])
    """After so many bytes the next answers end, each once."""
    ranges: bool = True
    statuses: list[int] = field(default_factory=list[int])
    """What the next answers are instead."""
    served: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """What is sent in the place of a file."""
    large: int = 1000
    """From so many bytes on a file is listed with its SHA-256, as large files are."""
    token: str | None = None
    redirect: str | None = None
    """Where file contents are said to lie instead: another server, or a circle."""
    listing: Any = None
    listing_at: str | None = None
    """The address that lists the files instead."""
    asked: Counter[str] = field(default_factory=Counter[str])
    authorizations: list[str | None] = field(default_factory=list[str | None])
    starts: list[int] = field(default_factory=list[int])
    """From which byte on files were asked for."""
    hold: threading.Event | None = None
    """What answers with contents wait for."""
    url: str = ""

    def listed(self) -> Any:
        return self.listing if self.listing is not None else [self._entry(path) for path in self.files]

    def _entry(self, path: str) -> dict[str, Any]:
        data = self.files[path]
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git}
        if len(data) >= self.large:
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            entry["blobId"] = hashlib.sha1(b"the pointer").hexdigest()
        return entry


@contextmanager
def serving(hub: FakeHub) -> Generator[FakeHub]:
    """Serve it while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.authorizations.append(self.headers.get("Authorization"))
            path = unquote(urlsplit(self.path).path)
            contents = f"/{REPOSITORY}/resolve/{COMMIT}/"
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._send(401)
            elif hub.statuses and (status := hub.statuses.pop(0)) != 200:
                self._send(status)
            elif path == f"/api/models/{REPOSITORY}/revision/main":
                hub.asked["revision"] += 1
                if hub.listing_at:
                    self._send(302, headers={"Location": hub.listing_at})
                    return
                model = {"id": REPOSITORY, "sha": COMMIT, "siblings": hub.listed()}
                self._send(200, json.dumps(model).encode())
            elif path.startswith(contents) and (name := path.removeprefix(contents)) in hub.files:
                hub.asked[name] += 1
                self._content(name)
            else:
                self._send(404)

        def _content(self, name: str) -> None:
            if hub.redirect:
                self._send(302, headers={"Location": hub.redirect})
                return
            data = hub.served.get(name, hub.files[name])
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            hub.starts.append(first)
            if hub.hold is not None:
                hub.hold.wait(30)
            if not hub.ranges:
                first = 0
            if first > len(data):
                self._send(416)
                return
            headers = {"Content-Range": f"bytes {first}-{len(data) - 1}/{len(data)}"} if first else {}
            self._send(206 if first else 200, data[first:], headers, hub.cuts.pop(0) if hub.cuts else None)

        def _send(
            self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])
            if cut is not None:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
