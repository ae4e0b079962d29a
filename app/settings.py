"""The ``server:`` section of a deployment's YAML file, read as strictly as the rest of it.

Knows no socket; raises ConfigError that names the path and the nearest known key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from app.proxies import check_proxies
from engine import ConfigError
from engine.config import build


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one client, and of all of them together."""

    sessions: int = 64
    """Open sessions; one more is refused with 503 before the upgrade."""
    calls: int = 16
    """The most WebRTC calls among the sessions: one takes 0.04 of a core for its sound, beside what its answers
    take."""
    offers: int = 8
    """The most calls whose client has not connected yet: offers that nobody follows never take all of them."""
    sidebands: int = 8
    """Further sockets on one call: a backend needs one, and each of them is told every event."""
    waiting: int = 16
    """Clients that wait for a session, if they asked to (``?wait=true``); one more is refused."""
    wait_s: float = 60.0
    """Seconds that they may wait: a person gives up sooner."""
    session_s: float = 3600.0
    """Seconds that a session may last: the hosted service's hour."""
    audio_s: float = 300.0
    """The longest turn: some minutes more than anyone says in one."""
    answer_s: float = 300.0
    """The longest speech of one answer; where it is cut, it ends as incomplete."""
    answer_tokens: int = 4096
    """The longest text of one answer, as far as the model's context goes: what the protocol lets a client ask for."""
    items: int = 2000
    """Items of one conversation."""
    conversation_mb: float = 64.0
    """Megabytes that one conversation holds: half an hour of speech (older speech stays as its words), or one large
    picture."""
    held_mb: float = 1024.0
    """Megabytes that all conversations, the bodies of all requests, and what is decoded of them hold together; what
    does not fit is refused (503). A tenth of the machine's memory or more is no bad figure where users send
    pictures."""
    kept_responses: int = 1000
    """Responses of ``/v1/responses`` that are kept for each key, so that ``previous_response_id`` finds them: a day of
    conversations of one application. The one that was used longest ago goes first."""
    kept_mb: float = 256.0
    """Megabytes that the kept responses of all keys hold, beside ``held_mb``; the key that holds the most loses its
    oldest. Four conversations as large as ``conversation_mb``, or some thousands of text."""
    responses: int = 4
    """Responses of one session at a time, those outside its conversation included."""
    answers: int = 16
    """Answers over HTTP at a time, apart from the sessions; one more is refused with 503."""
    answers_share: float = 0.5
    """The part of each stage's slots that answers over HTTP hold at most, so that a session finds one: the others wait
    for ``wait_s`` at most. At least one slot; 1: all, for a server without sessions."""
    secrets: int = 1000
    """Client secrets alive at a time: a page needs one for each call, and each holds at most 64 kB of settings."""
    key_share: float = 0.5
    """The part of the sessions, calls, offers, places in the waiting line, answers over HTTP, client secrets and
    memory (``held_mb``) that one key may hold where there are several keys: some are left for the others. At least one
    of each; 1: all."""
    address_share: float = 0.75
    """The same for one address, or one IPv6 network of 64 bits; this machine's own is not bounded. A reverse proxy
    belongs into ``server.trusted_proxies``, or all of its clients are one address."""
    idle_connections: int = 1024
    """Connections that wait for their client at a time: for a request, in a handshake, for somebody who reads. For one
    more, the one that has waited longest is closed. Sessions and answers that are being made don't count."""
    idle_per_address: int = 128
    """The most idle connections of one address (one network of 64 bits with IPv6); not of this machine's, nor of
    ``trusted_proxies``."""
    unsent_s: float = 10.0
    """Audio that may wait for a socket: pacing puts 1.5 s there, more means that its client does not read."""
    messages_s: float = 400.0
    """Messages a second that one client may send, and ten times as many at once: a page that sends each 128 samples of
    its microphone needs 188. Faster ones are read more slowly, and closed (1008) after a minute of it."""
    received_mb_s: float = 4.0
    """Megabytes that one client may send in a second, and ten times as much at once; faster ones are read more
    slowly."""
    key_received_mb_s: float = 32.0
    """The same for all clients of one key together: a backend's sixty users who speak send 4, a minute of theirs that
    waited, all at once, goes through."""
    address_received_mb_s: float = 16.0
    """The same for all clients of one address, or of one IPv6 network of 64 bits; this machine's own is not bounded."""
    send_timeout_s: float = 2.0
    """A client that takes nothing for so long is disconnected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Turn detection, where the protocol has no field for it."""

    min_speech_ms: int = 64
    """Speech in a row that starts a turn: a click is shorter."""
    echo_guard: bool = True
    """Whether the answer that comes back through the microphone is told from the user."""
    ahead: bool = True
    """Whether the model listens along while the user speaks; else it gets their turn when that is over."""
    guess_ms: int = 120
    """Silence after which an answer is begun, and held until the turn is over or the user goes on; 0: not before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IceServer:
    """A STUN or TURN server, as a browser's RTCPeerConnection takes it."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = None
    secret: str | None = None
    """The secret that the TURN server shares with this one (coturn's ``static-auth-secret``), in the place of
    ``username`` and ``credential``: every client then gets a name and a credential of its own, which expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The app's own settings."""

    host: str = "127.0.0.1"
    port: int = 8000
    https: str | None = None
    """``auto`` for a certificate that the server signs itself, or the file of one (PEM); without it, plain HTTP."""
    https_key: str | None = None
    """The file of the certificate's key, where that is another one."""
    keys_file: str | None = None
    """A file with one API key a line, ``name: key`` or the key alone (# starts a comment); with it, every route but
    /livez and /health asks for one. The name stands in logs and metrics, and owns what is made with the key. Keys
    have 16 characters at least, and no other user may read the file, but a group where it is root's. A change of the
    file counts from the next request on, whoever sends it; what was opened with a key that is gone ends then."""
    metrics: Literal["key", "open"] = "key"
    """Whether /metrics asks for a key where there are any, or is open to everybody who reaches the server."""
    metrics_key_file: str | None = None
    """A file with the keys of those who may read /metrics, which names the keys of others: with it, users may not."""
    admin_key_file: str | None = None
    """A file with the keys of those who may change the fleet of workers at /admin; without it nobody may."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides localhost and IP addresses that the Host header may carry: DNS rebinding needs a name."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages besides the server's own that may connect, like ``https://example.org``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, like ``127.0.0.1`` or ``10.0.0.0/24``. Their ``X-Forwarded-For`` and
    ``X-Forwarded-Proto`` are believed, so each has to write these headers itself; nobody else's are."""
    ice_servers: tuple[IceServer, ...] = ()
    """The servers that calls may ask for a way through NATs, the server's side and the browser's; by default nobody is
    asked."""
    ice_ports: tuple[int, ...] = ()
    """The first and the last UDP port of calls, for firewalls and containers; by default any that is free. A call takes
    one on each address of this machine."""
    ice_address: str | None = None
    """The IP address under which calls reach this machine from outside (a container's host, a one-to-one NAT): it is
    told in the place of the machine's own addresses."""
    ice_relay_only: bool = False
    """Whether calls go through a TURN server of ``ice_servers`` only; no address of this machine's is told then."""
    strict_names: bool = False
    """Whether HTTP refuses names of models and voices that are not loaded; without it, what is loaded serves them."""
    camera_every_s: float = 0.5
    """A user's camera is looked at no more often than that, and no more often than the model wants: nano once a second,
    Qwen3-Omni twice."""
    drain_s: float = 10.0
    """Seconds that answers under way may go on after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    turns: TurnSettings = field(default_factory=TurnSettings)


def settings_of(section: Mapping[str, Any]) -> Settings:
    """The settings that a ``server:`` section describes. Raises ConfigError."""
    settings: Settings = build(Settings, dict(section), "server")
    if not 0 <= settings.port <= 65535:
        raise ConfigError("server.port: must be from 0 to 65535")
    for name in ("answers_share", "key_share", "address_share"):
        if not 0 < getattr(settings.limits, name) <= 1:
            raise ConfigError(f"server.limits.{name}: must be above 0, and at most 1")
    for one in fields(settings.limits):
        if not getattr(settings.limits, one.name) > 0:
            raise ConfigError(f"server.limits.{one.name}: must be above 0")
    if settings.metrics == "open" and settings.metrics_key_file is not None:
        raise ConfigError("server.metrics_key_file: /metrics is open, so leave it out, or leave out server.metrics")
    if settings.camera_every_s <= 0:
        raise ConfigError("server.camera_every_s: must be above 0")
    check_proxies(settings.trusted_proxies)
    _check_ice(settings)
    if settings.drain_s < 0:
        raise ConfigError("server.drain_s: must not be below 0")
    return settings


def _check_ice(settings: Settings) -> None:
    for i, one in enumerate(settings.ice_servers):
        if not one.urls or not all(url.startswith(("stun:", "stuns:", "turn:", "turns:")) for url in one.urls):
            raise ConfigError(f"server.ice_servers[{i}].urls: must be addresses like stun:host:port or turn:host:port")
        if one.secret is not None and (not one.secret or one.username is not None or one.credential is not None):
            raise ConfigError(f"server.ice_servers[{i}].secret: stands alone, without username and credential")
    ports = settings.ice_ports
    if ports and not (len(ports) == 2 and 1024 <= ports[0] <= ports[1] <= 65535):
        raise ConfigError("server.ice_ports: must be two ports from 1024 to 65535, the lower one first")
    if settings.ice_relay_only and not any(url.startswith("turn") for one in settings.ice_servers for url in one.urls):
        raise ConfigError("server.ice_relay_only: calls need a TURN server in server.ice_servers")
    if settings.ice_address is not None:
        try:
            ipaddress.ip_address(settings.ice_address)
        except ValueError:
            raise ConfigError(f"server.ice_address: {settings.ice_address!r} is no IP address") from None
