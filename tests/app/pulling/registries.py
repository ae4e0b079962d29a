"""PyPI's simple index and npm's registry on loopback, with packages that can be missing, cut or of another kind."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


def wheel(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return out.getvalue()


def tarball(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@dataclass
class FakeRegistries:
    """``projects`` by name, each with its files; ``packages`` of npm by "NAME/VERSION"."""

    projects: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    packages: dict[str, bytes] = field(default_factory=dict[str, bytes])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Other files, by their paths: those of a mirror."""
    html: bool = False
    """Whether the index lists projects as PEP 503 says, not as PEP 691."""
    cuts: list[int] = field(default_factory=list[int])
    """The next downloads of archives end after so many bytes, each once."""
    asked: list[str] = field(default_factory=list[str])
    authorizations: list[str | None] = field(default_factory=list[str | None])
    starts: list[int] = field(default_factory=list[int])
    """The offsets at which archives were requested."""
    url: str = ""

    @property
    def index(self) -> str:
        return f"{self.url}/simple"

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """The content type and body of a path; None: 404."""
        kind, _, rest = path.lstrip("/").partition("/")
        match kind:
            case "simple" if (name := rest.rstrip("/")) in self.projects:
                return self._listed(name)
            case "files":
                found = {name: data for files in self.projects.values() for name, data in files.items()} | self.files
                return ("application/octet-stream", found[rest]) if rest in found else None
            case "npm" if rest in self.packages:
                dist = {"tarball": f"{self.url}/tarballs/{rest}"}
                return "application/json", json.dumps({"dist": dist}).encode()
            case "tarballs" if rest in self.packages:
                return "application/octet-stream", self.packages[rest]
            case _:
                return None

    def _listed(self, name: str) -> tuple[str, bytes]:
        hashes = {file: hashlib.sha256(data).hexdigest() for file, data in self.projects[name].items()}
        if self.html:
            links = [f'<a href="../../files/{file}#sha256={sha256}">{file}</a>' for file, sha256 in hashes.items()]
            return "text/html", "".join(links).encode()
        files: list[Any] = [
            {"filename": file, "url": f"../../files/{file}", "hashes": {"sha256": sha256}}
            for file, sha256 in hashes.items()
        ]
        return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()


@contextmanager
def registering(registries: FakeRegistries) -> Generator[FakeRegistries]:
    """Serve them while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(self.path)
            registries.asked.append(path)
            registries.authorizations.append(self.headers.get("Authorization"))
            found = registries.answer(path)
            kind, body = found or ("text/plain", b"")
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            cut = None
            if kind == "application/octet-stream":
                registries.starts.append(first)
                cut = registries.cuts.pop(0) if registries.cuts else None
            self.send_response(404 if found is None else 206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) - first))
            self.end_headers()
            try:
                self.wfile.write(body[first:][:cut])
            except OSError:  # a client that reads the header only
                self.close_connection = True
            if cut is not None:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that has read enough

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    registries.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registries
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
