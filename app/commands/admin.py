"""`parley workers | scale | restart`: show or change the workers of a running server, over its /admin routes."""

from __future__ import annotations

from typing import Any

import httpx2
from rich.console import Console
from rich.table import Table

from app.access.api_keys import read_keys
from app.commands import terminal
from app.commands.server import CONNECT_S, Address, refusal, trust, unreachable
from engine import RequestError

DRAIN_S = 3600.0  # a rolling restart waits for running answers, worker by worker


def workers(server: Address) -> None:
    """Print the table of replicas. Raises EngineError, like the other commands in this module."""
    _show(_asked(server, "GET", "/admin/workers"))


def scale(server: Address, wishes: list[str]) -> None:
    """Set the number of replicas for each ``STAGE=COUNT``."""
    for stage, count in [_wish(wish) for wish in wishes]:  # validate all before the first change
        with terminal.waiting(f"{stage}: {count}"):
            answer = _asked(server, "POST", "/admin/scale", {"stage": stage, "count": count})
        _show(answer)


def restart(server: Address) -> None:
    """Replace all workers one by one."""
    with terminal.waiting("replacing the workers one by one"):
        answer = _asked(server, "POST", "/admin/restart")
    _show(answer)


def _asked(server: Address, method: str, path: str, body: object = None) -> Any:
    """Return the server's JSON response. Ignores proxies of the environment, so that none receives the key."""
    (key, *_) = read_keys(str(server.key_file), "--key-file")
    headers = {"authorization": f"Bearer {key.value}"}
    timeout = httpx2.Timeout(DRAIN_S, connect=CONNECT_S)
    try:
        with httpx2.Client(headers=headers, timeout=timeout, verify=trust(), trust_env=False) as http:
            response = http.request(method, server.root + path, json=body)
    except httpx2.TransportError as error:
        raise unreachable(error, server.url) from None
    if not response.is_success:
        raise refusal(response.status_code, response.content, server)
    return response.json()


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
