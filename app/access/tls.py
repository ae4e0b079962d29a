"""The server's certificate: one that the user names, or one that it signs for itself, so that a phone's browser hands
over its microphone (which it does on ``https`` and on localhost only).

A self-signed certificate is made once, for localhost, this machine's addresses and the allowed host names; kept where
only its user can read it; and made anew when it expires or an address is missing. Knows no socket.
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
"""The longest that browsers have taken from anyone."""
MOST_NAMES = 100
"""Names that one certificate keeps of those before it: a laptop comes to many networks."""
SPARE = datetime.timedelta(days=7)
"""It is made anew so long before its end: a server may run for days."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files that have been seen to fit each other. ``fingerprint`` is SHA-256, as browsers show it."""

    path: Path
    key_path: Path
    fingerprint: str


class ServerTls:
    """The TLS that a server speaks: whoever renews its certificate's files need not restart it, since a handshake goes
    by what they hold."""

    def __init__(self, certificate: Certificate, context: ssl.SSLContext) -> None:
        self._certificate = certificate
        self._context = context
        self._seen = _stamps(certificate)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake. Files that can't be used, as while they are written, change
        nothing."""
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
    """What tells that a file was written anew."""
    return tuple(map(_stamp, (certificate.path, certificate.key_path)))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def certificate_of(settings: Settings, folder: Path | None = None) -> Certificate | None:
    """Return the certificate to serve with; None is plain HTTP. ``folder`` keeps a self-signed one. Raises
    ConfigError."""
    if settings.https is None:
        if settings.https_key is not None:
            raise ConfigError("server.https_key: needs server.https, the file of its certificate")
        return None
    if settings.https == AUTO:
        path = key = _self_signed((folder or _state_folder()) / "https.pem", _names(settings))
    else:
        path = Path(settings.https).expanduser()
        key = Path(settings.https_key).expanduser() if settings.https_key is not None else path
    return Certificate(path, key, _checked(path, key))


def _checked(path: Path, key: Path) -> str:
    """The fingerprint of the first certificate of a file, which the key fits. Raises ConfigError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key, password=_no_password)
        pem = path.read_text(encoding="ascii")
        first = pem[pem.index(ssl.PEM_HEADER) : pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
    except FileNotFoundError as error:
        raise ConfigError(f"server.https: there is no file {error.filename or path}") from None
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"server.https: {path} and its key can't be used: {reason}") from None
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _no_password() -> str:
    raise ValueError("the key is encrypted; decrypt it into a file that only the server can read")


def _state_folder() -> Path:
    """Return where programs of this user keep what is not worth a backup."""
    return Path.home() / ".local" / "state" / "parley"


def own_certificate() -> Path | None:
    """The certificate that a server of this user has signed for itself, if there is one: its clients may trust it."""
    path = _state_folder() / "https.pem"
    return path if path.is_file() else None


def _names(settings: Settings) -> tuple[str, ...]:
    """Return the names by which browsers may call this server: the Host check takes no other name."""
    own = () if is_any(settings.host) else (settings.host,)
    names = ("localhost", "127.0.0.1", "::1", *own, *settings.allowed_hosts, *addresses())
    return tuple(dict.fromkeys(name for name in names if name.isascii()))  # others come as Punycode


def is_any(host: str) -> bool:
    """Whether a server that listens there listens at every address of this machine."""
    return host in ("0.0.0.0", "::")


def addresses() -> Iterator[str]:
    """This machine's addresses in its networks; link-local ones name no machine outside their link."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(one.address.partition("%")[0])
                if not address.is_link_local:
                    yield str(address)


def _self_signed(path: Path, names: tuple[str, ...]) -> Path:
    """A file with a certificate for these names and its key, in one; the one that is there if it still serves."""
    try:
        known = _known(path)
        before = [] if known is None else _names_of(known)
        if known is None or not (_lasts(known) and set(before).issuperset(names)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, _made(dict.fromkeys((*names, *before))))
    except OSError as error:
        raise ConfigError(f"server.https: cannot keep a certificate in {path.parent}: {error.strerror}") from None
    return path


def _known(path: Path) -> x509.Certificate | None:
    """The certificate in a file; None where there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _names_of(known: x509.Certificate) -> list[str]:
    """The names that a certificate has. Another server of the same user may have others: it keeps them."""
    try:
        alternatives = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [str(one.value) for one in alternatives][:MOST_NAMES]


def _lasts(known: x509.Certificate) -> bool:
    """Whether it is valid for a while; one that is not valid yet was made while the clock was wrong."""
    return known.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) < known.not_valid_after_utc - SPARE


def _made(names: Iterable[str]) -> bytes:
    """A new key on P-256 and a certificate that it signs, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Parley on this machine")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a phone's clock may be behind
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
    """Write a file that only its owner can read, whole or not at all."""
    handle, draft = tempfile.mkstemp(dir=path.parent)  # 0600 from the start
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
