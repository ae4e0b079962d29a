"""A resumable, checked download of one file from any HTTP address."""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import ssl
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from app.pulling.errors import DiskError, PullError, TryAgain, refusal, unreachable

TRIES = 5  # attempts in a row without progress
PIECE = 1 << 20  # bytes of a file that are read and hashed at once
PAUSE_S = 1.0  # before the second attempt; doubles with each further one
ROOM = 64 << 20  # bytes that stay free on the disk
DOCUMENT = 64 << 20  # maximum bytes of a package's version list
DOCUMENT_S = 120.0  # maximum seconds that a list may take
CONNECT_S = 10.0
SILENT_S = 30.0
PARTIAL_CONTENT = 206
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Expected:
    """A file and its expected contents. At least one hash is known, except for archives, whose files are checked
    singly.

    Attributes:
      path: Its path below the model's folder, and its name in messages.
      size: Its size in bytes.
      sha256: Its SHA-256.
      git_sha1: The hash of its git blob, which a hub lists for small files instead.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


class Downloader:
    """Downloads files, one at a time, and checks each of them.

    ``progress`` receives the number of bytes that arrived; a negative number means that bytes must be fetched again.
    ``token`` is sent to the host of each address, but not to redirects to another host. ``proxy`` and ``ca_file``
    replace those of the environment. Raises PullError if ``proxy`` or ``ca_file`` can't be used.
    """

    def __init__(
        self,
        progress: Callable[[int], None],
        token: str | None = None,
        proxy: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        headers = {"User-Agent": "parley", "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
        self._progress = progress
        try:
            verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
            self._http = httpx2.Client(
                headers=headers, timeout=timeout, follow_redirects=True, proxy=proxy, verify=verify
            )
        except OSError as error:
            raise PullError(f"the certificates in {ca_file} cannot be read ({error.strerror or error})") from None
        except (ValueError, ImportError, httpx2.InvalidURL):
            raise PullError("the configured proxy is not a URL of the form http://HOST:PORT") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def text(self, url: str, what: str, accept: str, most: int = DOCUMENT) -> tuple[str, str]:
        """Return a document of at most ``most`` bytes, and its URL after redirects. Raises PullError."""
        found = bytearray()
        end_s = time.monotonic() + DOCUMENT_S
        with self._response(url, what, {"Accept": accept}) as response:
            for piece in response.iter_bytes():
                found += piece
                if len(found) > most:
                    raise PullError(f"{response.url.host} has a list of {what} with more than {most >> 20} MiB")
                if time.monotonic() > end_s:
                    raise PullError(f"{response.url.host} took more than {DOCUMENT_S:g} s to list {what}")
            return found.decode("utf-8", "replace"), str(response.url)

    def size(self, url: str, what: str) -> int:
        """Return the size of a file according to its server. Raises PullError."""
        with self._response(url, what, {}) as response:
            stated = response.headers.get("Content-Length", "")
            if not stated.isdigit():
                raise PullError(f"{response.url.host} does not state the size of {what}")
            return int(stated)

    def fetch(self, url: str, file: Expected, target: Path, tries: int = TRIES) -> str:
        """Download a file to ``target``, resuming an earlier attempt at the same contents.

        Args:
          url: The address of the file.
          file: Its expected contents.
          target: The path of the complete and checked file.
          tries: The number of attempts in a row without progress before the download fails.

        Returns:
          The SHA-256 of the file.

        Raises:
          PullError: The download failed. Received bytes are kept, unless they are wrong.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{(file.sha256 or file.git_sha1 or '')[:8]}.part")
        if _size(part) > file.size:  # of another file
            part.unlink()
        self._progress(_size(part))
        failures = 0
        while (had := _size(part)) != file.size or not part.exists():
            try:
                self._append(url, file, part, had)
            except TryAgain:
                failures = 0 if _size(part) > had else failures + 1
                if failures >= tries:
                    raise
                time.sleep(PAUSE_S * 2 ** max(failures - 1, 0))
        sha256 = checked(file, part)
        part.replace(target)
        return sha256

    def _append(self, url: str, file: Expected, part: Path, had: int) -> None:
        """Fetch the rest of a file, or as much of it as arrives."""
        with self._response(url, file.path, {"Range": f"bytes={had}-"} if had else {}) as response:
            start = _start(response, had)
            self._progress(start - had)
            with writing(part), part.open("r+b" if start else "wb") as out:
                out.seek(start)
                for piece in response.iter_raw():
                    if out.tell() + len(piece) > file.size:
                        part.unlink()
                        raise PullError(f"{file.path} is longer than expected ({file.size} bytes)")
                    out.write(piece)
                    self._progress(len(piece))
        if _size(part) < file.size:
            raise TryAgain(f"{file.path} was cut off after {_size(part)} of {file.size} bytes")

    @contextmanager
    def _response(self, url: str, path: str, headers: dict[str, str]) -> Generator[httpx2.Response]:
        try:
            with self._http.stream("GET", url, headers=headers) as response:
                if not response.is_success:
                    raise refusal(response.status_code, response.url.host, path)
                yield response
        except httpx2.TooManyRedirects:
            raise PullError(f"{httpx2.URL(url).host} redirects in a loop") from None
        except httpx2.HTTPError as error:
            raise unreachable(httpx2.URL(url).host, error) from error
        except httpx2.InvalidURL:
            raise PullError(f"{path} cannot be downloaded: its source {url!r} is not a valid URL") from None


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Convert an error while writing a file, such as a full disk, to a PullError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full; received data is kept" if full else error.strerror
        raise DiskError(f"{path}: {reason}") from error


def check_room(folder: Path, size: int, what: str) -> None:
    """Raise DiskError unless the disk of ``folder`` has room for ``size`` bytes more."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if (missing := size + ROOM - free) > 0:
        raise DiskError(
            f"{folder}: {what} needs {size / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are available; "
            f"free {missing / 1e6:.0f} MB more"
        )


def _start(response: httpx2.Response, asked: int) -> int:
    """Return the offset at which a response starts: the requested one, or 0."""
    if response.status_code != PARTIAL_CONTENT:
        return 0  # the server ignores ranges and sends the whole file
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != asked:
        raise PullError(f"{response.url.host} sent another part of the file than the requested one")
    return asked


def checked(file: Expected, path: Path) -> str:
    """Return the SHA-256 of a file with the expected contents. Removes any other file and raises PullError."""
    sha256, git_sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for piece in pieces_of(path):
        sha256.update(piece)
        git_sha1.update(piece)
    wrong = file.sha256 not in (None, sha256.hexdigest()) or file.git_sha1 not in (None, git_sha1.hexdigest())
    if wrong:
        path.unlink()
        raise PullError(f"{file.path}: wrong contents (SHA-256 {sha256.hexdigest()}); the file was removed")
    return sha256.hexdigest()


def pieces_of(path: Path) -> Iterable[bytes]:
    """Yield the bytes of a file."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
