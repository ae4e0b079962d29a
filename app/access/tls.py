"""The server's TLS certificate: the configured files, or a self-signed certificate.

Browsers allow the microphone only on ``https`` and on localhost, so a phone on the local network needs HTTPS. A
self-signed certificate covers localhost, this machine's addresses and the allowed host names. Its file is readable only
by its owner. It is renewed shortly before it expires, or when it lacks an address or a name.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.settings import Settings
from app.telemetry import log
from engine import ConfigError

AUTO = "auto"
LIFE = datetime.timedelta(days=397)
"""The longest lifetime that browsers have accepted."""
MOST_NAMES = 100
"""Maximum number of names kept from earlier certificates: a laptop visits many networks."""
SPARE = datetime.timedelta(days=7)
"""A certificate is renewed this long before its end, since a server may run for days."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files that have been seen to fit each other. ``fingerprint`` is SHA-256, as browsers show it."""

    path: Path
    key_path: Path
    fingerprint: str


class ServerTls:
    """The server's TLS context. It reloads renewed certificate files without a restart."""

    def __init__(self, certificate: Certificate, context: ssl.SSLContext) -> None:
        self._certificate = certificate
        self._context = context
        self._seen = _stamps(certificate)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake.

        If the files can't be used, for example while they are being written, the previous context stays in use.
        """
        certificate = self._certificate
        if (stamps := _stamps(certificate)) != self._seen:
            self._seen = stamps
            try:
                fingerprint = _checked(certificate.path, certificate.key_path)
                self._context.load_cert_chain(certificate.path, certificate.key_path)
                log("server.certificate_renewed", fingerprint=fingerprint)
            except (ConfigError, OSError) as error:
                log("server.certificate_unfit", error=str(error))
        return self._context


def _stamps(certificate: Certificate) -> tuple[tuple[int, int, int] | None, ...]:
    """Return file metadata that changes when a file is rewritten."""
    return tuple(map(_stamp, (certificate.path, certificate.key_path)))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def certificate_of(settings: Settings, folder: Path | None = None) -> Certificate | None:
    """Return the certificate to serve with, or None for plain HTTP.

    ``folder`` stores a self-signed certificate. Raises ConfigError.
    """
    if settings.https is None:
        if settings.https_key is not None:
            raise ConfigError("server.https_key: requires server.https, the certificate file")
        return None
    if settings.https == AUTO:
        path = key = _self_signed((folder or _state_folder()) / "https.pem", _names(settings))
    else:
        path = Path(settings.https).expanduser()
        key = Path(settings.https_key).expanduser() if settings.https_key is not None else path
    return Certificate(path, key, _checked(path, key))


def _checked(path: Path, key: Path) -> str:
    """Return the fingerprint of a file's first certificate, after checking that the key matches. Raises ConfigError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key, password=_no_password)
        pem = path.read_text(encoding="ascii")
        first = pem[pem.index(ssl.PEM_HEADER) : pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
    except FileNotFoundError as error:
        raise ConfigError(f"server.https: no such file: {error.filename or path}") from None
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"server.https: the certificate {path} and the key {key} can't be used: {reason}") from None
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _no_password() -> str:
    raise ValueError("the key is encrypted; decrypt it into a file that only the server can read")


def _state_folder() -> Path:
    """Return the folder for this user's state that needs no backup."""
    return Path.home() / ".local" / "state" / "parley"


def own_certificate() -> Path | None:
    """Return this user's self-signed certificate, if there is one, so that local clients can trust it."""
    path = _state_folder() / "https.pem"
    return path if path.is_file() else None


def _names(settings: Settings) -> tuple[str, ...]:
    """Return the names by which browsers may reach this server: the same that the Host check accepts."""
    own = () if is_any(settings.host) else (settings.host,)
    names = ("localhost", "127.0.0.1", "::1", *own, *settings.allowed_hosts, *addresses())
    return tuple(dict.fromkeys(name for name in names if name.isascii()))  # others arrive as Punycode


def is_any(host: str) -> bool:
    """Return whether the host is a wildcard, ``0.0.0.0`` or ``::``, which stands for all addresses of the machine."""
    return host in ("0.0.0.0", "::")


def addresses() -> Iterator[str]:
    """Yield this machine's network addresses, without link-local ones, which are valid on one link only."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(one.address.partition("%")[0])
                if not address.is_link_local:
                    yield str(address)


def _self_signed(path: Path, names: tuple[str, ...]) -> Path:
    """Return a file with a self-signed certificate for these names and its key; reuses a file that is still valid."""
    try:
        known = _known(path)
        before = [] if known is None else _names_of(known)
        if known is None or not (_lasts(known) and set(before).issuperset(names)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, _made(dict.fromkeys((*names, *before))))
    except OSError as error:
        raise ConfigError(f"server.https: cannot store a certificate in {path.parent}: {error.strerror}") from None
    return path


def _known(path: Path) -> x509.Certificate | None:
    """Return the certificate in a file, or None if there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _names_of(known: x509.Certificate) -> list[str]:
    """Return the names of a certificate, which a renewal keeps: another server of the user may need them."""
    try:
        alternatives = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [str(one.value) for one in alternatives][:MOST_NAMES]


def _lasts(known: x509.Certificate) -> bool:
    """Return whether a certificate stays valid for a while. One that is not valid yet was made with a wrong clock."""
    return known.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) < known.not_valid_after_utc - SPARE


def _made(names: Iterable[str]) -> bytes:
    """Return a new P-256 key and its self-signed certificate, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Parley on this machine")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a phone's clock may be slow
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem) + secret


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    handle, draft = tempfile.mkstemp(dir=path.parent)  # 0600 from the start
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
