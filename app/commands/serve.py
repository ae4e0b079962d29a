"""`parley serve`: run a server, and print its address once it is ready.

The routes are in app/server.py.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from app.access.tls import AUTO, Certificate, addresses, is_any
from app.commands import terminal
from app.commands.deployment import deployment
from app.commands.open_ears import advised_ears
from app.http.phone import reachable
from app.http.qr_code import qr_code, terminal_lines
from app.server import Extend, is_loopback, no_more, serve
from app.settings import Settings, settings_of
from engine import EngineSpec, ModelInfo


def run_server(
    spec: EngineSpec,
    extend: Extend = no_more,
    options: Mapping[str, str] | None = None,
    also: str = "",
    qr: bool = False,
    others: Sequence[EngineSpec] = (),
) -> None:
    """Serve until a signal. ``extend`` may add routes. Raises EngineError, also if the port is in use.

    ``options`` names the deployment's parts, if the command line chose some: the start prints a command with all of
    them. ``also`` is the path of an added page, which the start prints. ``qr`` prints the page's address as a QR code.
    ``others`` are further deployments.
    """
    settings = settings_of(spec.server)

    def announce(url: str, models: Sequence[ModelInfo], certificate: Certificate | None) -> None:
        for line in (*announcement(url, settings, certificate, list(addresses())), *about(models, options or {})):
            terminal.say(line)
        if also:
            terminal.say(f"The demo is at {url}{also}")
        if qr:
            show_qr_code(reachable(_at(url, "127.0.0.1"), settings.host))

    serve(spec, announce, extend, others)


def further(configs: Sequence[str], first: EngineSpec) -> list[EngineSpec]:
    """Return a server's deployments after the first one. Reports settings that have no effect. Raises ConfigError."""
    specs = [deployment(config) for config in configs]
    used = (Settings(), settings_of(first.server))
    for spec in specs:
        if settings_of(spec.server) not in used:
            terminal.say(f"The `server` section of {spec.title} has no effect: the server has that of {first.title}.")
    return specs


def show_qr_code(url: str | None) -> None:
    """Print the QR code of the page's address, or how other machines can reach it."""
    if url is None:
        terminal.say("No phone can reach this address. To print a QR code, add: --host 0.0.0.0 --https auto")
        return
    for line in terminal_lines(qr_code(url)):
        terminal.show_code(line)
    terminal.say(f"Open on your phone: {url}")


def about(models: Sequence[ModelInfo], options: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of several models, notes about each, and the command that starts the same server again."""
    if len(models) > 1:
        yield f"Models: {', '.join(model.name for model in models)}"
    yield from dict.fromkeys(note for model in models for note in model.notes)
    if any(model.hears_only_for for model in models):
        ears = advised_ears()
        yield f"For open speech recognition: `parley pull {ears.name}` ({ears.size_mb} MB), then start again."
    if options:
        yield f"To start the same again: {shlex.join(repeated(sys.argv, options))}"


def repeated(argv: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return the command line ``argv`` with these options, replacing values that it already has for them."""
    words = list(argv) if Path(argv[0]).stem == "parley" else ["parley", "serve", *argv[2:]]
    for name, value in options.items():
        joined = [place for place, word in enumerate(words) if word.startswith(f"{name}=")]
        if joined:
            words[joined[-1]] = f"{name}={value}"
        elif name in words[:-1]:
            words[words.index(name) + 1] = value
        else:
            words += [name, value]
    return words


def announcement(
    url: str, settings: Settings, certificate: Certificate | None, addresses: Sequence[str]
) -> Iterator[str]:
    """Yield the start-up lines: the addresses for this and other machines, and how to allow a microphone there.

    ``addresses`` are this machine's.
    """
    here = _at(url, "::1" if ":" in settings.host else "127.0.0.1") if is_any(settings.host) else url
    yield f"Parley is ready: talk to it at {here} (Ctrl-C stops it)"
    if not is_loopback(settings.host):
        yield from _to_others(url, settings, addresses)
    if certificate is not None and settings.https == AUTO:
        yield "Browsers warn once, since the certificate is self-signed. Its SHA-256 fingerprint:"
        yield certificate.fingerprint
        path = certificate.path
        yield f"Node trusts it with NODE_EXTRA_CA_CERTS={path}, Python with SSL_CERT_FILE={path}"


def _to_others(url: str, settings: Settings, addresses: Sequence[str]) -> Iterator[str]:
    bound = [one for one in addresses if settings.host != "0.0.0.0" or ":" not in one]  # 0.0.0.0 is every IPv4 address
    others = [_at(url, address) for address in bound if not ip_address(address).is_loopback]
    others = (others if is_any(settings.host) else [url]) or ["none (this machine has no network)"]
    yield f"From other machines: {', '.join(others)}"
    if settings.https is None:
        yield "Browsers there allow the microphone only on https pages. To use speech from other machines, start:"
        yield f"  {shlex.join(_https_command(urlsplit(url).port))}"
    if settings.keys_file is None:
        yield "Anyone who can reach this address may use it: set server.keys_file to require a key."


def _at(url: str, address: str) -> str:
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    return f"{parts.scheme}://{host}:{parts.port}"


def _https_command(port: int | None) -> list[str]:
    """Return the command that started this server, with a certificate."""
    if Path(sys.argv[0]).stem == "parley":
        return [*sys.argv, "--https", AUTO]
    return ["parley", "serve", "--host", "0.0.0.0", "--port", str(port), "--https", AUTO]
