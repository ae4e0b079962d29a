"""The Hugging Face hub, or a mirror: lists a repository's files with their URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Annotated
from urllib.parse import quote

import httpx2
import msgspec
from huggingface_hub import get_token, hf_hub_url, is_offline_mode
from msgspec import Meta

from app.pulling.download import Downloader, Expected
from app.pulling.errors import PullError

HUB = "https://huggingface.co"
LISTING = 8 << 20
"""Maximum bytes of a repository's list of files, which has room for 20,000 files."""

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{40,64}$")]


class _LargeFile(msgspec.Struct):
    sha256: Hash


class _ListedFile(msgspec.Struct, rename={"git_sha1": "blobId", "path": "rfilename"}):
    """A file as the hub lists it. For a large file, the git hash is the hash of the pointer, not of the contents."""

    path: Annotated[str, Meta(max_length=1024)]
    size: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    git_sha1: Hash | None = None
    lfs: _LargeFile | None = None


class _Listing(msgspec.Struct):
    """The fields of a repository's description that are used; decoding skips all others.

    Source: the hub's API, ``GET /api/models/{repository}/revision/{revision}?blobs=true``.
    """

    sha: Hash = ""
    siblings: list[_ListedFile] = []


class HuggingFace:
    """A hub at ``url``. ``token`` gives access to gated models.

    Without one, the token of ``hf auth login`` is used, but only for the real hub, not for mirrors. Every method raises
    PullError.
    """

    def __init__(self, url: str = HUB, token: str | None = None) -> None:
        try:
            self._host = httpx2.URL(url).host
        except httpx2.InvalidURL:
            self._host = ""
        if not self._host:
            raise PullError(f"{url!r} is not the URL of a hub; use one like {HUB}")
        self.url = url.rstrip("/")
        self.token = token or (get_token() if self.url == HUB else None)

    def files(self, repository: str, revision: str) -> tuple[str, Mapping[str, Expected]]:
        """Return the commit that a revision currently means, and its files by path."""
        if is_offline_mode():
            raise PullError("HF_HUB_OFFLINE is set, so no hub is used; pass a folder with --from")
        url = f"{self.url}/api/models/{quote(repository)}/revision/{quote(revision, safe='')}?blobs=true"
        with Downloader(lambda _: None, self.token) as downloader:
            text, _ = downloader.text(url, repository, "application/json", LISTING)
        try:
            found = msgspec.json.decode(text, type=_Listing)
        except (msgspec.DecodeError, RecursionError):
            raise PullError(f"{self.url} returned an invalid list of files for {repository}") from None
        if not found.sha:
            raise PullError(f"{self.url} did not return the commit of {revision} in {repository}")
        files = map(_expected, found.siblings)
        return found.sha, {file.path: file for file in files}

    def address(self, repository: str, commit: str, path: str) -> str:
        """Return the URL of a file's contents."""
        return hf_hub_url(repository, path, revision=commit, endpoint=self.url)


def _expected(listed: _ListedFile) -> Expected:
    sha256 = listed.lfs.sha256 if listed.lfs else None
    git_sha1 = None if listed.lfs else listed.git_sha1
    return Expected(_inside(listed.path), listed.size or 0, sha256, git_sha1)


def _inside(path: str) -> str:
    """Return a path after checking that it stays in the model's folder.

    Catalogues select files by patterns, and a hub may be malicious.
    """
    pure = PureWindowsPath(path)  # covers every way out: a root, a drive, either slash
    if pure.anchor or ".." in pure.parts:
        raise PullError(f"the hub lists {path[:200]!r}, which is outside the model's folder; nothing was downloaded")
    return path
