"""`parley serve`: the command line's flags over the configuration, and the address once it can be talked to.

Knows no route: that is app/server.py.
"""

from __future__ import annotations

import dataclasses

from app.commands import terminal
from app.server import serve
from engine import EngineSpec


def run_server(spec: EngineSpec, host: str | None, port: int | None) -> None:
    """Serve until a signal ends it. Raises EngineError, for a port in use too."""
    flags = {"host": host, "port": port}
    given = {name: value for name, value in flags.items() if value is not None}
    serve(dataclasses.replace(spec, server={**spec.server, **given}), on_ready=_announce)


def _announce(url: str) -> None:
    terminal.say(f"Parley is ready: talk to it at {url} (Ctrl-C ends it)")
