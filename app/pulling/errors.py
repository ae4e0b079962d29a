"""Errors of a download, one sentence each."""

from __future__ import annotations

from engine.errors import WeightsError


class PullError(WeightsError):
    """A download failed, and another attempt would fail in the same way."""


class DiskError(PullError):
    """A file can't be written here, so another source would not help."""


class TryAgain(PullError):
    """A download failed for a reason that may pass, such as a lost connection or a busy server."""


def refusal(status: int, host: str, what: str) -> PullError:
    """Return the error for an unsuccessful HTTP status; ``what`` names the file or repository."""
    match status:
        case 401 | 403:
            return PullError(
                f"{host} requires access rights for {what}: accept its licence on the hub's page, and "
                f"pass a file with your token (--token-file)"
            )
        case 404:
            return PullError(f"{host} has no {what}; the catalogue may be out of date")
        case 416:
            return TryAgain(f"{host} has a shorter {what} than the part already downloaded")
        case 429:
            return TryAgain(f"{host} limits the rate of requests (429)")
        case _ if status >= 500:
            return TryAgain(f"{host} failed with status {status}")
        case _:
            return PullError(f"{host} responded with status {status} to the request for {what}")


def unreachable(host: str, error: Exception) -> TryAgain:
    """Return the error for a connection that failed."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return TryAgain(f"the connection to {host} failed ({reason})")
