"""`parley workers | scale | restart`: ask a running server who works for it, or to change that.

Knows no engine: it speaks to the server's /admin routes over HTTP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from rich.console import Console
from rich.table import Table

from app.commands import terminal
from app.commands.server import trust
from app.keys import read_keys
from engine import ConfigError, EngineError, RequestError

DRAIN_S = 3600.0  # a rolling restart waits for answers under way, worker by worker


@dataclass(frozen=True, slots=True)
class Remote:
    """A running server, and the file that holds its admin key."""

    url: str
    key_file: str

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The server's JSON answer. No proxy of the environment gets the key. Raises EngineError with its own words."""
        (key, *_) = read_keys(self.key_file, "--key-file")
        headers = {"authorization": f"Bearer {key.value}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            directly = build_opener(ProxyHandler({}), HTTPSHandler(context=trust()))
            request = Request(self.url.rstrip("/") + path, data, headers, method=method)
            with directly.open(request, timeout=DRAIN_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise EngineError(_words(error)) from None
        except (OSError, ValueError) as error:
            raise _unreachable(self.url, error) from None


def workers(remote: Remote) -> None:
    """Print the table of replicas."""
    _show(remote.ask("GET", "/admin/workers"))


def scale(remote: Remote, wishes: list[str]) -> None:
    """Have as many replicas as each ``STAGE=COUNT`` says."""
    for stage, count in [_wish(wish) for wish in wishes]:  # all are read before the first is done
        with terminal.waiting(f"{stage}: {count}"):
            answer = remote.ask("POST", "/admin/scale", {"stage": stage, "count": count})
        _show(answer)


def restart(remote: Remote) -> None:
    """Replace every worker, one after the other."""
    with terminal.waiting("one worker after the other is replaced"):
        answer = remote.ask("POST", "/admin/restart")
    _show(answer)


def _wish(text: str) -> tuple[str, int]:
    stage, _, count = text.partition("=")
    if not stage or not count.isascii() or not count.isdigit():
        raise RequestError(f"{text!r:.60}: must be STAGE=COUNT, like talker=3")
    return stage, int(count)


def _show(answer: Any) -> None:
    table = Table("stage", "replica", "state", "load", "waiting", "step", "incarnation", "up for")
    for row in answer["workers"]:
        table.add_row(
            row["stage"],
            row["replica"],
            row["state"],
            f"{row['leased']}/{row['slots']}",
            str(row["queue"]),
            f"{row['step_ms']:.1f} ms",
            str(row["incarnation"]),
            f"{row['age_s']:.0f} s",
        )
    Console(emoji=False).print(table)


def _unreachable(url: str, error: OSError | ValueError) -> ConfigError:
    """Explain why no server answers there, in one sentence."""
    if not url.startswith(("http://", "https://")):
        return ConfigError(f"{url!r} is no address of a server: give one like http://127.0.0.1:8000")
    reason = getattr(error, "reason", error)
    return ConfigError(f"there is no server at {url}: {getattr(reason, 'strerror', None) or reason}")


def _words(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}"
