"""`parley serve`: the command line's flags over the configuration, and the address once it can be talked to.

Knows no route: that is app/server.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from app.commands import terminal
from app.server import Extend, no_more, serve
from app.settings import Settings, settings_of
from app.tls import AUTO, addresses, certificate_of, is_any
from engine import EngineSpec


def run_server(spec: EngineSpec, flags: Mapping[str, str | int | None], extend: Extend = no_more) -> None:
    """Serve until a signal ends it; a flag that is given wins over the section's key of its name.

    ``extend`` may add routes. Raises EngineError, for a port in use too.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    section = {**spec.server, **given}
    spec = dataclasses.replace(spec, server=section)
    serve(spec, lambda url: _announce(url, settings_of(section)), extend)


def _announce(url: str, settings: Settings) -> None:
    terminal.say(f"Parley is ready: talk to it at {url} (Ctrl-C ends it)")
    if is_any(settings.host):
        others = [url.replace(settings.host, address) for address in addresses() if ":" not in address]
        terminal.say(f"From other machines: {', '.join(others[1:] or ['none is connected'])}")
    certificate = certificate_of(settings)
    if certificate is not None and settings.https == AUTO:
        terminal.say("Browsers warn once, since the certificate is the server's own. Its SHA-256 fingerprint:")
        terminal.say(certificate.fingerprint)
