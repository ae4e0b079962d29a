"""The doctor's findings about a server: its port or the Parley server using it, UDP, certificate and key files.

Each check returns a Finding and raises nothing.
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
    """Return this machine's addresses, with one loopback address."""
    found = [ipaddress.ip_address(one) for one in addresses()]
    return [*(str(one) for one in found if one.is_loopback)][:1] + [str(one) for one in found if not one.is_loopback]


def port_free(host: str, port: int) -> Finding:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with socket.create_server((host, port), family=_family(host)):
            return Finding("ok", "port", f"{where} is free")
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            step = "use one of its addresses; without IPv4: parley serve --host ::1"
            return Finding("fail", "port", f"{host} is not an address of this machine", step)
        if (running := _running(host, port)) is not None:
            return running
        step = f"stop the program that uses it, or use another port: parley serve --port {port + 1}"
        return Finding("fail", "port", f"{where} cannot be used: {error.strerror or error}", step)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _running(host: str, port: int) -> Finding | None:
    """Return a finding about the Parley server at an address; None if no such server answers there."""
    for scheme in ("http", "https"):
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        if (health := _health(url)) is not None:
            about = f"a Parley server (version {health.get('version', 'unknown')}) runs at {url}: {health['status']}"
            if health["status"] == "ready":
                return Finding("ok", "port", f"{about}, with {health['model']}")
            return Finding("warn", "port", about, "wait until it is ready, and check its log")
    return None


def _health(url: str) -> dict[str, Any] | None:
    """Return the health of a Parley server. It is no secret, so any certificate is accepted."""
    try:
        with httpx2.Client(verify=trust(strict=False), trust_env=False, timeout=ASK_S) as http:
            health: Any = http.get(f"{url}/health").json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return None
    return health if isinstance(health, dict) and {"status", "model"} <= health.keys() else None


def udp(own: Iterable[str]) -> Finding:
    """Check that datagrams reach each address of this machine, as WebRTC calls require."""
    unreachable = [address for address in own if not _reaches(address)]
    if not unreachable:
        return Finding("ok", "UDP", "datagrams reach every address of this machine; WebRTC calls can work")
    step = "allow UDP in the firewall; otherwise the web page uses its WebSocket"
    return Finding("warn", "UDP", f"datagrams do not reach {', '.join(unreachable)}: WebRTC calls will fail", step)


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
    """Check that the certificate can be used, and how long it is valid."""
    if settings.https is None:
        if is_loopback(settings.host):
            return Finding("ok", "https", "off: not needed on this machine; phones need --https auto")
        step = "parley serve --https auto"
        return Finding("warn", "https", "off: browsers on other machines will not allow the microphone", step)
    if settings.https == AUTO and own_certificate() is None:
        return Finding("ok", "https", "the server creates a self-signed certificate when it starts")
    try:
        path = own_certificate() if settings.https == AUTO else None
        certificate = None if path else certificate_of(settings)
        path = path or (certificate.path if certificate else Path())
        known = x509.load_pem_x509_certificate(path.read_bytes())
        begins, ends = known.not_valid_before_utc, known.not_valid_after_utc
    except (ConfigError, OSError, ValueError) as error:
        return Finding(
            "fail", "https", str(error), "pass a certificate with --https FILE, or create one with --https auto"
        )
    if begins > now:
        text = f"{path} is not valid before {begins:%Y-%m-%d}"
        return Finding("fail", "https", text, "check this machine's clock; if it is right, renew the certificate")
    text = f"{path} is valid until {ends:%Y-%m-%d}"
    if settings.https == AUTO:
        return Finding("ok", "https", f"{text}, and renewed automatically")
    if ends <= now:
        return Finding("fail", "https", f"{path} expired on {ends:%Y-%m-%d}", "renew the certificate")
    if ends <= now + SOON:
        return Finding("warn", "https", text, "renew the certificate")
    return Finding("ok", "https", text)


def keys(subject: str, path: str | None, nobody_asks: bool) -> Finding:
    """Check a key file. ``nobody_asks``: whether it is fine to have none."""
    if path is None:
        if nobody_asks:
            return Finding("ok", subject, "no keys required")
        step = "set server.keys_file to a file with one key per line"
        return Finding("warn", subject, "anyone who can reach this server may use it", step)
    try:
        count = len(ApiKeys.of_file(path, subject))
    except ConfigError as error:
        return Finding(
            "fail",
            subject,
            str(error).removeprefix(f"{subject}: "),
            "write one key per line, in a file that no other user can read",
        )
    return Finding("ok", subject, f"{count} in {path}")
