"""The Hugging Face hub, or a mirror: lists a repository's files with their URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PureWindowsPath

import httpx2
from huggingface_hub import HfApi, close_session, get_token, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoSibling

from app.pulling.download import SILENT_S, Expected
from app.pulling.errors import PullError, refusal, unreachable

HUB = "https://huggingface.co"


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
        self._api = HfApi(self.url, self.token or False, library_name="parley")

    def files(self, repository: str, revision: str) -> tuple[str, Mapping[str, Expected]]:
        """Return the commit that a revision currently means, and its files by path."""
        try:
            info = self._api.model_info(repository, revision=revision, files_metadata=True, timeout=SILENT_S)
            files = [_expected(one) for one in info.siblings or ()]
        except HfHubHTTPError as error:
            raise refusal(error.response.status_code, self._host, repository) from None
        except OfflineModeIsEnabled:
            raise PullError("HF_HUB_OFFLINE is set, so no hub is used; pass a folder with --from") from None
        except httpx2.HTTPError as error:
            raise unreachable(self._host, error) from error
        except (KeyError, TypeError, ValueError):
            raise PullError(f"{self.url} returned an invalid list of files for {repository}") from None
        finally:
            close_session()
        if not info.sha:
            raise PullError(f"{self.url} did not return the commit of {revision} in {repository}")
        return info.sha, {file.path: file for file in files}

    def address(self, repository: str, commit: str, path: str) -> str:
        """Return the URL of a file's contents."""
        return hf_hub_url(repository, path, revision=commit, endpoint=self.url)


def _expected(listed: RepoSibling) -> Expected:
    """Convert a hub's listing of a file. A large file's git hash is that of its pointer, so it is not used."""
    sha256 = listed.lfs.sha256 if listed.lfs else None
    git_sha1 = None if listed.lfs else listed.blob_id
    return Expected(_inside(listed.rfilename), int(listed.size or 0), sha256, git_sha1)


def _inside(path: str) -> str:
    """Return a path after checking that it stays in the model's folder.

    Catalogues select files by patterns, and a hub may be malicious.
    """
    pure = PureWindowsPath(path)  # covers every way out: a root, a drive, either slash
    if pure.anchor or ".." in pure.parts:
        raise PullError(f"the hub lists {path[:200]!r}, which is outside the model's folder; nothing was downloaded")
    return path
