"""Errors of a download, one sentence each."""

from __future__ import annotations

from engine.errors import WeightsError


class PullError(WeightsError):
    """A download failed, and another attempt would fail in the same way."""


class DiskError(PullError):
    """A file cannot be written here, so that no other source would help."""


class TryAgain(PullError):
    """A download failed for a reason that may pass, such as a lost connection or a busy server."""


def refusal(status: int, host: str, what: str) -> PullError:
    """Return the error for an HTTP status that is no success; ``what`` names the file or repository."""
    match status:
        case 401 | 403:
            return PullError(
                f"{host} does not give {what} to everybody: accept its licence on the hub's page, and "
                f"name a file with your token (--token-file)"
            )
        case 404:
            return PullError(f"{host} has no {what}; the catalogue may be out of date")
        case 416:
            return TryAgain(f"{host} has a shorter {what} than this machine")
        case 429:
            return TryAgain(f"{host} limits the rate of requests (429)")
        case _ if status >= 500:
            return TryAgain(f"{host} failed to answer ({status})")
        case _:
            return PullError(f"{host} answers {status} to the request for {what}")


def unreachable(host: str, error: Exception) -> TryAgain:
    """Return the error for a connection that failed."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return TryAgain(f"the connection to {host} failed ({reason})")
