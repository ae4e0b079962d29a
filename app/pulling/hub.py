"""A hub of models over HTTP: which files a repository has at a commit, and their bytes from some place on.

Source: the Hugging Face hub's API: ``/api/models/REPO/revision/REV``, ``/api/models/REPO/tree/COMMIT``,
``/REPO/resolve/COMMIT/PATH``. Knows no catalogue and no disk.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import PureWindowsPath
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx2

from app.pulling.errors import PullError, TryAgain

HUB = "https://huggingface.co"
CONNECT_S, SILENT_S = 10.0, 30.0
MOST_LISTED = 10_000  # files of a repository: a listing is no reason to fill the memory
PARTIAL_CONTENT = 206
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Listed:
    """A file as the hub lists it; ``sha256`` of large ones, of the others git's own hash."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.size = int(entry["size"])
        lfs = entry.get("lfs") or {}
        self.sha256: str | None = lfs.get("oid")
        self.git_sha1: str | None = None if self.sha256 else entry.get("oid")


class Hub:
    """A hub at ``url``; ``token`` is the user's, for gated models.

    Every method raises PullError, or TryAgain for an error that another try may mend.
    """

    def __init__(self, url: str = HUB, token: str | None = None, silent_s: float = SILENT_S) -> None:
        self._url = url.rstrip("/")
        headers = {"User-Agent": "parley", "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        timeout = httpx2.Timeout(CONNECT_S, read=silent_s)
        # A redirect leads to where large files lie; the library takes the token along to no other host.
        self._http = httpx2.Client(headers=headers, timeout=timeout, follow_redirects=True)

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def commit(self, repository: str, revision: str) -> str:
        """The commit that a revision is now."""
        found = self._json(f"{self._url}/api/models/{repository}/revision/{quote(revision, safe='')}", repository)
        sha = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(sha, str) or not sha:
            raise PullError(f"{self._url} did not say which commit of {repository} {revision} is")
        return sha

    def listing(self, repository: str, commit: str) -> dict[str, Listed]:
        """The files of a commit, by their paths."""
        files: dict[str, Listed] = {}
        url: str | None = f"{self._url}/api/models/{repository}/tree/{commit}?recursive=true"
        while url and len(files) < MOST_LISTED:
            with self._asked(url, repository) as response:
                response.read()
                entries, url = self._decoded(response), response.links.get("next", {}).get("url")
            try:
                files |= {_inside(entry["path"]): Listed(entry) for entry in entries if entry["type"] == "file"}
            except (KeyError, TypeError, ValueError):
                raise PullError(f"{self._url} does not list {repository} as a hub would") from None
        return files

    @contextmanager
    def content(self, repository: str, commit: str, path: str, start: int) -> Generator[tuple[int, Iterator[bytes]]]:
        """Yield where a file's bytes begin that come now, ``start`` or 0, and these bytes, in pieces."""
        url = f"{self._url}/{repository}/resolve/{commit}/{quote(path)}"
        with self._asked(url, repository, {"Range": f"bytes={start}-"} if start else {}) as response:
            yield _begins(response, start), response.iter_raw()

    def _json(self, url: str, repository: str) -> Any:
        with self._asked(url, repository) as response:
            response.read()
            return self._decoded(response)

    def _decoded(self, response: httpx2.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise PullError(f"{self._url} answers with something that is no JSON; is it a hub?") from None

    @contextmanager
    def _asked(self, url: str, repository: str, headers: dict[str, str] | None = None) -> Generator[httpx2.Response]:
        try:
            with self._http.stream("GET", url, headers=headers) as response:
                _check(response, repository)
                yield response
        except httpx2.TooManyRedirects:
            raise PullError(f"{self._url} redirects in a circle") from None
        except httpx2.HTTPError as error:
            raise TryAgain(f"the connection to {httpx2.URL(url).host} failed ({_reason(error)})") from error
        except httpx2.InvalidURL:
            raise PullError(f"{self._url} is no address of a hub") from None


def _inside(path: str) -> str:
    """A file's path, which has to stay in the model's folder: catalogues name files by patterns, and a hub need not be
    honest."""
    pure = PureWindowsPath(path)  # it knows every way to lead out: of a root, of a drive, with either slash
    if pure.anchor or ".." in pure.parts:
        raise PullError(f"the hub lists {path[:200]!r}, which leads out of the model's folder; nothing was fetched")
    return path


def _begins(response: httpx2.Response, start: int) -> int:
    """Return the byte from which on a response brings a file."""
    if response.status_code != PARTIAL_CONTENT:
        return 0  # it does not do ranges: all comes again
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != start:
        raise PullError(f"{response.url.host} sends another part of the file than it was asked for")
    return start


def _check(response: httpx2.Response, repository: str) -> None:
    """Raises what a status other than that of a success means."""
    host, status = response.url.host, response.status_code
    if response.is_success:
        return
    match status:
        case 401 | 403:
            raise PullError(
                f"{host} does not give {repository} to everybody: accept its licence on the hub's page, and "
                f"name a file with your token (--token-file)"
            )
        case 404:
            raise PullError(f"{host} has no {httpx2.URL(response.url).path}; the catalogue may be out of date")
        case 416:
            raise TryAgain(f"{host} has a shorter file than what is here")
        case 429:
            raise TryAgain(f"{host} is asked too often (429)")
        case _ if status >= 500:
            raise TryAgain(f"{host} has trouble of its own ({status})")
        case _:
            raise PullError(f"{host} answers {status} to {response.url.path}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
