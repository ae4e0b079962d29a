"""Pages for browsers, all from local files: the web page, and the API documentation.

The web page is the content of ``web/dist``. Without it, ``/`` names the API's addresses.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

import fastapi_offline
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.staticfiles import PathLike
from starlette.types import Receive, Scope, Send

import web
from app.access.auth import DOCS, refuse
from app.access.security_headers import POLICY

_DOCS = f"{DOCS}/files"
_DOCS_FILES = Path(fastapi_offline.__file__).parent / "static"  # Swagger UI, as published
_DOCS_POLICY = f"{POLICY}; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
"""Swagger UI starts from an inline script, and uses inline styles and images."""
_NO_PAGE = "Parley is running. Realtime API: WS /v1/realtime. Documentation: /docs. Web page: not built (web/dist).\n"


def page_files() -> Path | None:
    """Return the folder of the built web page, in the installed package or in the clone."""
    folder = Path(web.__file__).parent / "dist"
    return folder if (folder / "index.html").is_file() else None


def page_paths() -> frozenset[str]:
    """Return the URL paths of the web page's files, which need no API key because they contain no secret."""
    folder = page_files()
    if folder is None:
        return frozenset({"/"})
    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return frozenset({"/", *(f"/{file}" for file in files)})


def add_pages(app: FastAPI) -> None:
    """Add the pages' routes. Call it last, since the web page handles every path without another route."""

    @app.get(DOCS, include_in_schema=False)
    async def docs() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]
        page = get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=f"{app.title}: API",
            swagger_js_url=f"{_DOCS}/swagger-ui-bundle.js",
            swagger_css_url=f"{_DOCS}/swagger-ui.css",
            swagger_favicon_url=f"{_DOCS}/favicon.png",
            swagger_ui_parameters={"validatorUrl": None},  # otherwise the page would load a badge from another server
        )
        page.headers["content-security-policy"] = _DOCS_POLICY
        return page

    app.mount(_DOCS, _Files(directory=_DOCS_FILES))
    folder = page_files()
    if folder is not None:
        app.mount("/", _Files(directory=folder, html=True))
        return

    @app.get("/", include_in_schema=False)
    async def no_page() -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(_NO_PAGE)


@lru_cache(maxsize=64)
def _content(path: str, changed_ns: int) -> bytes:
    """Return a file's content. ``changed_ns`` makes the cache reload a changed file."""
    return Path(path).read_bytes()


class _Files(StaticFiles):
    """Serves static files, and 404 for everything else.

    Files are sent from memory: a file kept open for each slow reader would use up file descriptors.
    """

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        if not isinstance(response, FileResponse):
            return response  # 304 Not Modified
        if str(full_path).endswith(".js"):
            response.headers["access-control-allow-origin"] = "*"  # other pages import the library
        content = _content(str(full_path), stat_result.st_mtime_ns)
        del response.headers["accept-ranges"]
        return Response(content, status_code, response.headers, response.media_type)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Find a file without a thread: each thread would take the interpreter from the event loop for up to 5 ms."""
        found = self._found(path)
        if found is None:
            raise HTTPException(404)
        return self.file_response(*found, scope)

    def _found(self, path: str) -> tuple[str, os.stat_result] | None:
        for one in (path, os.path.join(path, "index.html"))[: 1 + self.html]:
            try:
                full_path, status = self.lookup_path(one)
            except (OSError, ValueError):  # the path is too long, unreadable or invalid
                continue
            if status is not None and stat.S_ISREG(status.st_mode):
                return full_path, status
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await refuse(scope, send, 404, "not_found", "No WebSocket at this path: use /v1/realtime.")
        elif scope["method"] not in ("GET", "HEAD"):
            message = f"No {scope['method']} request is served at this path: see /docs for the API."
            await refuse(scope, send, 404, "not_found", message)
        else:
            await super().__call__(scope, receive, send)
