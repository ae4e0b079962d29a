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

TRIES = 5  # in a row that bring nothing
PIECE = 1 << 20  # bytes of a file that are read and hashed at a time
PAUSE_S = 1.0  # before the second try; then twice as long each time
ROOM = 64 << 20  # bytes that a disk keeps free beside a model
DOCUMENT = 64 << 20  # bytes of the longest list of a package's versions
CONNECT_S = 10.0
SILENT_S = 30.0
PARTIAL_CONTENT = 206
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Expected:
    """A file and what it must contain. At least one of the hashes is known, except for an archive whose files are
    checked one by one.

    Attributes:
        path: Its place below the model's folder, and its name in messages.
        size: Its bytes.
        sha256: Its SHA-256.
        git_sha1: The hash of its git blob, which a hub lists for small files instead.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


class Downloader:
    """Downloads files, one at a time, and checks each of them.

    ``progress`` receives the number of bytes that arrived, or below 0 that have to come again. ``token`` is sent to
    the host of each address, but to no host that it redirects to. ``proxy`` and ``ca_file`` replace those of the
    environment. Raises PullError if one of them cannot be used.
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
            raise PullError("the configured proxy is not an address like http://HOST:PORT") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def text(self, url: str, what: str, accept: str) -> tuple[str, str]:
        """Return a small document, and the URL that it was found at after redirects. Raises PullError."""
        with self._response(url, what, {"Accept": accept}) as response:
            pieces: list[bytes] = []
            for piece in response.iter_bytes():
                pieces.append(piece)
                if sum(map(len, pieces)) > DOCUMENT:
                    raise PullError(f"{response.url.host} lists {what} in more than {DOCUMENT >> 20} MiB")
            return b"".join(pieces).decode("utf-8", "replace"), str(response.url)

    def size(self, url: str, what: str) -> int:
        """Return the size of a file, as its server states it. Raises PullError."""
        with self._response(url, what, {}) as response:
            stated = response.headers.get("Content-Length", "")
            if not stated.isdigit():
                raise PullError(f"{response.url.host} does not state the size of {what}")
            return int(stated)

    def fetch(self, url: str, file: Expected, target: Path, tries: int = TRIES) -> str:
        """Download a file to ``target``, resuming an earlier attempt at the same contents.

        Args:
            url: The address of the file.
            file: What it must contain.
            target: Where it goes once it is complete and checked.
            tries: The number of attempts in a row that bring nothing before the download fails.

        Returns:
            The SHA-256 of the file.

        Raises:
            PullError: The download failed. Whatever arrived is kept, unless it is wrong.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{(file.sha256 or file.git_sha1 or '')[:8]}.part")
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
        """Fetch the rest of a file, or as much of it as comes."""
        with self._response(url, file.path, {"Range": f"bytes={had}-"} if had else {}) as response:
            start = _start(response, had)
            self._progress(start - had)
            with writing(part), part.open("r+b" if start else "wb") as out:
                out.seek(start)
                for piece in response.iter_raw():
                    if out.tell() + len(piece) > file.size:
                        part.unlink()
                        raise PullError(f"{file.path} is longer than the {file.size} bytes that it should have")
                    out.write(piece)
                    self._progress(len(piece))
        if _size(part) < file.size:
            raise TryAgain(f"{file.path} broke off after {_size(part)} of {file.size} bytes")

    @contextmanager
    def _response(self, url: str, path: str, headers: dict[str, str]) -> Generator[httpx2.Response]:
        try:
            with self._http.stream("GET", url, headers=headers) as response:
                if not response.is_success:
                    raise refusal(response.status_code, response.url.host, path)
                yield response
        except httpx2.TooManyRedirects:
            raise PullError(f"{httpx2.URL(url).host} redirects in a circle") from None
        except httpx2.HTTPError as error:
            raise unreachable(httpx2.URL(url).host, error) from error
        except httpx2.InvalidURL:
            raise PullError(f"{url} is no address of a file") from None


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Report what keeps a file from being written, such as a full disk, as a PullError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full; what has come is kept" if full else error.strerror
        raise DiskError(f"{path}: {reason}") from error


def check_room(folder: Path, size: int, what: str) -> None:
    """Raise DiskError unless the disk of ``folder`` has room for ``size`` bytes more."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if (missing := size + ROOM - free) > 0:
        raise DiskError(
            f"{folder}: {what} needs {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free; "
            f"make room for {missing / 1e6:.0f} MB more"
        )


def _start(response: httpx2.Response, asked: int) -> int:
    """Return the offset at which the bytes of a response begin: where they were asked for, or 0."""
    if response.status_code != PARTIAL_CONTENT:
        return 0  # the server ignores ranges and sends all of it again
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != asked:
        raise PullError(f"{response.url.host} sends another part of the file than it was asked for")
    return asked


def checked(file: Expected, path: Path) -> str:
    """Return the SHA-256 of a file with the expected contents; remove any other one and raise PullError."""
    sha256, git_sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for piece in pieces_of(path):
        sha256.update(piece)
        git_sha1.update(piece)
    wrong = file.sha256 not in (None, sha256.hexdigest()) or file.git_sha1 not in (None, git_sha1.hexdigest())
    if wrong:
        path.unlink()
        raise PullError(
            f"{file.path}: what came is not what it should be (its hash is {sha256.hexdigest()}); it was removed"
        )
    return sha256.hexdigest()


def pieces_of(path: Path) -> Iterable[bytes]:
    """Yield the bytes of a file."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
