"""The doctor's findings about a server: its port, or the Parley that holds it; UDP; the certificate; the files of keys.

Each check returns a Finding and raises nothing. Knows no model.
"""

from __future__ import annotations

import datetime
import errno
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
from cryptography import x509

from app.access.api_keys import ApiKeys
from app.access.tls import AUTO, addresses, certificate_of, own_certificate
from app.commands.finding import Finding
from app.commands.server import trust
from app.server import is_loopback
from app.settings import Settings
from engine import ConfigError

ASK_S = 2.0
SOON = datetime.timedelta(days=14)


def server_findings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about the server that the settings describe."""
    yield port_free(settings.host, settings.port)
    yield udp(_own())
    yield https(settings, datetime.datetime.now(datetime.UTC))
    yield keys("keys", settings.keys_file, is_loopback(settings.host))
    if settings.admin_key_file is not None:
        yield keys("admin keys", settings.admin_key_file, nobody_asks=True)
    if settings.metrics_key_file is not None:
        yield keys("metrics keys", settings.metrics_key_file, nobody_asks=True)


def _own() -> list[str]:
    """This machine's addresses, with one that it calls itself by."""
    found = [ipaddress.ip_address(one) for one in addresses()]
    return [*(str(one) for one in found if one.is_loopback)][:1] + [str(one) for one in found if not one.is_loopback]


def port_free(host: str, port: int) -> Finding:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with socket.create_server((host, port), family=_family(host)):
            return Finding("ok", "port", f"{where} is free")
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            step = "choose one that it has: parley serve --host ::1 on a machine without IPv4"
            return Finding("fail", "port", f"this machine has no address {host}", step)
        if (running := _running(host, port)) is not None:
            return running
        step = f"stop what listens there, or choose another: parley serve --port {port + 1}"
        return Finding("fail", "port", f"{where} cannot be taken: {error.strerror or error}", step)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _running(host: str, port: int) -> Finding | None:
    """The Parley server at an address; None if there is none."""
    for scheme in ("http", "https"):
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        if (health := _health(url)) is not None:
            about = f"a Parley server (version {health.get('version', 'unknown')}) runs at {url}: {health['status']}"
            if health["status"] == "ready":
                return Finding("ok", "port", f"{about}, with {health['model']}")
            return Finding("warn", "port", about, "wait until it is ready, and read what it logs")
    return None


def _health(url: str) -> dict[str, Any] | None:
    """Return what a Parley server at an address says of its health. It is no secret, so no certificate is needed for
    it."""
    try:
        with httpx2.Client(verify=trust(strict=False), trust_env=False, timeout=ASK_S) as http:
            health: Any = http.get(f"{url}/health").json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return None
    return health if isinstance(health, dict) and {"status", "model"} <= health.keys() else None


def udp(own: Iterable[str]) -> Finding:
    """Whether a datagram reaches this machine at each of its addresses, as the sound of calls over WebRTC must."""
    deaf = [address for address in own if not _reaches(address)]
    if not deaf:
        return Finding("ok", "UDP", "datagrams pass at every address of this machine; calls over WebRTC can work")
    step = "let the firewall pass UDP; without it the page talks over its WebSocket"
    return Finding("warn", "UDP", f"no datagram passes at {', '.join(deaf)}: calls over WebRTC will fail", step)


def _reaches(address: str) -> bool:
    family = _family(address)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as ear, socket.socket(family, socket.SOCK_DGRAM) as mouth:
            ear.bind((address, 0))
            ear.settimeout(1.0)
            mouth.sendto(b"parley", ear.getsockname())
            return ear.recv(16) == b"parley"
    except OSError:
        return False


def https(settings: Settings, now: datetime.datetime) -> Finding:
    """Whether the certificate can be used, and for how long."""
    if settings.https is None:
        if is_loopback(settings.host):
            return Finding("ok", "https", "off: browsers on this machine talk without it; phones need --https auto")
        step = "parley serve --https auto"
        return Finding("warn", "https", "off: browsers on other machines give no microphone to this server", step)
    if settings.https == AUTO and own_certificate() is None:
        return Finding("ok", "https", "the server signs a certificate for itself when it starts")
    try:
        path = own_certificate() if settings.https == AUTO else None
        certificate = None if path else certificate_of(settings)
        path = path or (certificate.path if certificate else Path())
        known = x509.load_pem_x509_certificate(path.read_bytes())
        begins, ends = known.not_valid_before_utc, known.not_valid_after_utc
    except (ConfigError, OSError, ValueError) as error:
        return Finding(
            "fail", "https", str(error), "name a certificate with --https FILE, or have one made: --https auto"
        )
    if begins > now:
        text = f"{path} is valid only from {begins:%Y-%m-%d} on"
        return Finding("fail", "https", text, "set this machine's clock; if it is right, renew the certificate")
    text = f"{path} is valid until {ends:%Y-%m-%d}"
    if settings.https == AUTO:
        return Finding("ok", "https", f"{text}, and made anew in time")
    if ends <= now:
        return Finding("fail", "https", f"{path} has expired on {ends:%Y-%m-%d}", "renew the certificate")
    if ends <= now + SOON:
        return Finding("warn", "https", text, "renew the certificate")
    return Finding("ok", "https", text)


def keys(subject: str, path: str | None, nobody_asks: bool) -> Finding:
    """Whether a file of keys can be read, and by nobody else. ``nobody_asks``: it is well without any."""
    if path is None:
        if nobody_asks:
            return Finding("ok", subject, "none are asked for")
        step = "name a file with a key a line: server.keys_file"
        return Finding("warn", subject, "everybody who reaches this server may use it", step)
    try:
        count = len(ApiKeys.of_file(path, subject))
    except ConfigError as error:
        return Finding(
            "fail",
            subject,
            str(error).removeprefix(f"{subject}: "),
            "a key a line, in a file that nobody else can read",
        )
    return Finding("ok", subject, f"{count} in {path}")
