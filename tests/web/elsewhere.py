"""A web server of another origin: the files of a folder, and keys as a page's own backend gives them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Elsewhere:
    """``key`` answers ``POST /voice-key``, in a thread."""

    folder: Path
    port: int = 0
    key: Callable[[], str] = field(default=lambda: "")

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, name: str, html: str) -> str:
        """Put a page there; returns its address."""
        (self.folder / name).write_text(html)
        return f"{self.origin}/{name}"


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: object, place: Elsewhere) -> None:
        self._place = place
        super().__init__(*args, directory=str(place.folder))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path != "/favicon.ico":
            return super().do_GET()
        self.send_response(204)
        return self.end_headers()

    def do_POST(self) -> None:
        body = self._place.key().encode()
        self.send_response(200 if self.path == "/voice-key" and body else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def elsewhere(folder: Path) -> Generator[Elsewhere]:
    """One that answers on a port of loopback."""
    place = Elsewhere(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, place=place)) as server:
        server.daemon_threads = False
        place.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield place
        finally:
            server.shutdown()
            thread.join()
