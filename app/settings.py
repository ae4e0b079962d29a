"""The ``server:`` section of a deployment's YAML file, read as strictly as the rest of it.

Knows no socket; raises ConfigError that names the path and the nearest known key.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any, Literal

from app.addresses import check_proxies
from app.ids import NAME
from engine import ConfigError
from engine.config import address_of, build

ICE_URL = re.compile(r"(stuns?|turns?):[^?:\s]+(:\d+)?(\?transport=(udp|tcp))?")
"""The address of a STUN or TURN server (RFC 7064, RFC 7065), as far as aiortc reads it: without addresses of IPv6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one client, and of all of them together."""

    sessions: int = 64
    """Open sessions; one more is refused with 503 before the upgrade."""
    calls: int = 16
    """The most WebRTC calls among the sessions: one takes 0.04 of a core for its sound, beside what its answers
    take."""
    offers: int = 8
    """The most calls whose client has not connected yet, so that offers which nobody follows never take all calls."""
    sidebands: int = 8
    """Further sockets on one call; a backend needs one, and each of them is told every event."""
    waiting: int = 16
    """Clients that wait for a session (``?wait=true``); one more is refused."""
    wait_s: float = 60.0
    """Seconds that a client may wait for a session, or for a place among the answers over HTTP: a person gives up
    sooner."""
    session_s: float = 3600.0
    """Seconds that a session may last, as at the hosted service."""
    audio_s: float = 300.0
    """Seconds of the longest turn, and of the longest recording: some minutes more than anyone says in one."""
    answer_s: float = 300.0
    """Seconds of speech in one answer; an answer that is cut there ends as incomplete."""
    answer_tokens: int = 4096
    """Tokens of text in one answer, as far as the model's context goes: the protocol lets a client ask for so many."""
    items: int = 2000
    """Items of one conversation."""
    conversation_mb: float = 64.0
    """Megabytes of one conversation: half an hour of speech (older speech stays as its words), or one large picture."""
    held_mb: float = 1024.0
    """Megabytes of all conversations, request bodies, and what is decoded of them; beyond, 503. Where users send
    pictures, a tenth of the machine's memory or more is a good figure."""
    kept_responses: int = 1000
    """Responses of ``/v1/responses`` that are kept for each key, so that ``previous_response_id`` finds them: a day of
    conversations of one application. The one that was used longest ago goes first."""
    kept_mb: float = 256.0
    """Megabytes of the kept responses of all keys, beside ``held_mb``. The key that holds the most loses its oldest.
    The default is four conversations as large as ``conversation_mb``, or some thousands of text."""
    responses: int = 4
    """Responses of one session at a time, those outside its conversation included."""
    answers: int = 16
    """Answers over HTTP at a time, apart from the sessions; one more is refused with 503."""
    answers_share: float = 0.5
    """The part of each stage's slots that those answers hold at most, so that a session finds one; the others wait for
    ``wait_s``. ``1``: all, for a server without sessions."""
    secrets: int = 1000
    """Client secrets alive at a time: a page needs one for each call, and each holds at most 64 kB of settings."""
    key_share: float = 0.5
    """The part of the sessions, calls, offers, waiting places, HTTP answers, client secrets and memory that one key may
    hold where there are several keys: at least one of each. ``1``: all."""
    address_share: float = 0.75
    """The same part for one address, or one IPv6 network of 64 bits. This machine's own address is not bounded. Name a
    reverse proxy in ``trusted_proxies``, or all its clients are one address."""
    idle_connections: int = 1024
    """Connections that wait for their client: for a request, in a handshake, or for a reader. For one more, the one
    that has waited longest is closed. Sessions and answers under way do not count."""
    idle_per_address: int = 128
    """The same for one address, or one IPv6 network of 64 bits; not for this machine's, nor for ``trusted_proxies``."""
    unsent_s: float = 10.0
    """Seconds of audio that may wait for a socket. Pacing puts 1.5 s there; more means that its client does not
    read."""
    messages_s: float = 400.0
    """Messages a second that one client may send, and ten times as many at once: a page that sends each 128 samples of
    its microphone needs 188. Faster clients are read more slowly, and closed (1008) after a minute."""
    received_mb_s: float = 4.0
    """Megabytes a second that one client may send, and ten times as much at once. Faster clients are read more
    slowly."""
    key_received_mb_s: float = 32.0
    """The same for all clients of one key together: sixty users of a backend who speak send 4, and a minute of theirs
    that waited may come all at once."""
    address_received_mb_s: float = 16.0
    """The same for all clients of one address, or of one IPv6 network of 64 bits; this machine's own is not bounded."""
    send_timeout_s: float = 2.0
    """Seconds without reading after which a client is disconnected: a network's hiccup is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Turn detection, where the protocol has no field for it."""

    min_speech_ms: int = 64
    """Milliseconds of unbroken speech that start a turn: a click is shorter."""
    echo_guard: bool = True
    """Whether the answer that comes back through the microphone is told from the user."""
    ahead: bool = True
    """Whether the model listens along while the user speaks. Without it, the model gets their turn when that is
    over."""
    guess_ms: int = 120
    """Milliseconds of silence after which an answer is begun. It is held until the turn is over or the user goes on.
    ``0``: no answer is begun before the turn's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IceServer:
    """A STUN or TURN server, as a browser's RTCPeerConnection takes it."""

    urls: tuple[str, ...]
    """Addresses like ``stun:host:port`` or ``turn:host:port``. The host is a name, or an address of IPv4."""
    username: str | None = None
    """The name for the TURN server."""
    credential: str | None = None
    """The password for the TURN server."""
    secret: str | None = None
    """The secret that the TURN server shares with this one (coturn's ``static-auth-secret``), in the place of
    ``username`` and ``credential``. Every client then gets a name and a password of its own, good for two hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telephone:
    """Calls that come from telephones (app/TELEPHONES.md); without an exchange of the two there are none."""

    protocol: Literal["realtime", "live"] = "realtime"
    """The protocol of ``session``, and of the backends that listen beside a call: at ``/v1/realtime?call_id=…``, or at
    ``/v1/live/sessions/…/attach``."""
    session: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that each call's session begins with, as the protocol's ``session`` has them: ``instructions``,
    ``audio.output.voice``, ``tools`` (in Live ``delegation``) and others."""
    greeting: str | None = None
    """Instructions for the first answer, with which the model begins the call. Without it the caller speaks first."""
    hang_up: bool = True
    """Whether the model may end the call, by a function ``hang_up`` that the server runs."""
    destinations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Names and telephone numbers to which the model may hand a call on, by a function ``transfer``."""
    key: str = ""
    """The name of the key whose calls they are: a backend with it may listen to them, run their tools and end them
    (``?call_id=``)."""
    twilio_url: str | None = None
    """The server's own address as Twilio reaches it, like ``https://voice.example.org``. The number's "a call comes in"
    is then ``/v1/telephone/twilio`` there."""
    twilio_token_file: str | None = None
    """A file with the auth token of the Twilio account. What is not signed with it is refused."""
    audiosocket: str | None = None
    """The address, like ``127.0.0.1:9092``, at which an Asterisk brings calls by AudioSocket. That protocol has no key:
    whoever reaches the port may call."""
    sip: str | None = None
    """The UDP address, like ``192.0.2.7:5060``, at which SIP brings calls. Their sound comes to ports of ``ice_ports``
    on the same host; ``ice_address`` is told where others reach it under another one."""
    sip_peers: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """The addresses or networks from which SIP is taken. What others send is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server whose tools clients may use; it is asked from this machine, with the client's key."""

    url: str
    """The server's address, like ``https://docs.example.org/mcp`` (streamable HTTP). A client gives the same address as
    ``server_url``."""
    private: bool = False
    """``true``: the address may be one of this machine or of a private network. ``false``: a name that leads to such an
    address is refused."""
    timeout_s: float = 30.0
    """Seconds that the server may take to list its tools, and for each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The app's own settings."""

    host: str = "127.0.0.1"
    """The address to listen at; ``0.0.0.0`` opens the server to other machines."""
    port: int = 8000
    """The port to listen at; ``0`` takes any free one."""
    name: str | None = None
    """The server's name among several behind one proxy (``a-z``, ``0-9`` and ``-``, 16 at most), like ``a``. It stands
    in the ids that clients bring back (``rtc_a_5b1f…``), so that the proxy finds the server by them."""
    https: str | None = None
    """``auto`` for a certificate that the server signs itself, or the file of one (PEM). Without it the server speaks
    plain HTTP."""
    https_key: str | None = None
    """The file of the certificate's key, where it is another file."""
    keys_file: str | None = None
    """A file with one API key a line, ``name: key`` or the key alone (``#`` starts a comment). With it, every route
    asks for a key, except ``/livez`` and ``/health``, the page's files, the API's documentation (``/docs``,
    ``/openapi.json``) and what Twilio sends, which is signed. A key has at least 16 characters. The name stands in logs
    and metrics, and owns what is made with the key. No other user may read the file, except a group where the file is
    root's. A change of the file counts from the next request on; sessions of a key that is gone end then."""
    metrics: Literal["key", "open"] = "key"
    """``key``: ``/metrics`` asks for a key where there are any. ``open``: everybody who reaches the server may read
    it."""
    metrics_key_file: str | None = None
    """A file with the keys that may read ``/metrics``, which names the users' keys. With it, users' keys may not."""
    admin_key_file: str | None = None
    """A file with the keys that may change the fleet of workers at ``/admin``. Without it nobody may."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may carry besides localhost and IP addresses: DNS rebinding needs a name."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may connect besides the server's own, like ``https://example.org``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, like ``10.0.0.0/24``. Their ``X-Forwarded-For`` and
    ``X-Forwarded-Proto`` are believed, so each proxy has to write these headers itself. No other peer's are
    believed."""
    ice_servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers that calls may ask for a way through NATs, on the server's side and the browser's. Each has
    ``urls``, and either ``username`` and ``credential`` or ``secret``."""
    ice_ports: tuple[int, ...] = ()
    """The first and the last UDP port of calls, for firewalls and containers; without it any free port. A call takes
    one on each address of the machine."""
    ice_address: str | None = None
    """The IP address under which calls reach this machine from outside (a container's host, a one-to-one NAT). Clients
    get it in the place of the machine's own addresses."""
    ice_relay_only: bool = False
    """``true``: calls go only through a TURN server of ``ice_servers``, and clients get no address of this machine."""
    strict_names: bool = False
    """``true``: HTTP refuses names of models and voices that are not loaded. ``false``: the loaded ones serve every
    name."""
    camera_every_s: float = 0.5
    """Seconds between two pictures of a user's camera, at the least; a model may want fewer (nano: one a second)."""
    drain_s: float = 10.0
    """Seconds that answers under way may go on after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    """The limits of clients: see "Limits"."""
    turns: TurnSettings = field(default_factory=TurnSettings)
    """Turn detection: see "Turns"."""
    telephone: Telephone = field(default_factory=Telephone)
    """Calls from telephones: see "Telephones"."""
    mcp: tuple[McpServer, ...] = ()
    """The MCP servers whose tools clients may have this server run: see "MCP servers". By default none is ever
    asked."""


def settings_of(section: Mapping[str, Any]) -> Settings:
    """The settings that a ``server:`` section describes. Raises ConfigError."""
    settings: Settings = build(Settings, dict(section), "server")
    if not 0 <= settings.port <= 65535:
        raise ConfigError("server.port: must be from 0 to 65535")
    if settings.name is not None and NAME.fullmatch(settings.name) is None:
        raise ConfigError("server.name: must be at most 16 of a-z, 0-9 and '-', and not begin with '-'")
    for name in ("answers_share", "key_share", "address_share"):
        if not 0 < getattr(settings.limits, name) <= 1:
            raise ConfigError(f"server.limits.{name}: must be above 0, and at most 1")
    for one in fields(settings.limits):
        if not 0 < getattr(settings.limits, one.name) < math.inf:
            raise ConfigError(f"server.limits.{one.name}: must be above 0, and not without end")
    if settings.metrics == "open" and settings.metrics_key_file is not None:
        raise ConfigError("server.metrics_key_file: /metrics is open, so leave it out, or leave out server.metrics")
    if not 0 < settings.camera_every_s < math.inf:
        raise ConfigError("server.camera_every_s: must be above 0, and not without end")
    check_proxies(settings.trusted_proxies)
    _check_ice(settings)
    _check_telephone(settings)
    _check_mcp(settings)
    if not 0 <= settings.drain_s < math.inf:
        raise ConfigError("server.drain_s: must not be below 0, or without end")
    return settings


def _check_ice(settings: Settings) -> None:
    for i, one in enumerate(settings.ice_servers):
        if not one.urls or not all(map(ICE_URL.fullmatch, one.urls)):
            raise ConfigError(
                f"server.ice_servers[{i}].urls: must be addresses like stun:host:port or turn:host:port, "
                "with a name or an address of IPv4"
            )
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


def _check_telephone(settings: Settings) -> None:
    telephone, where = settings.telephone, "server.telephone"
    url = telephone.twilio_url
    if (url is None) != (telephone.twilio_token_file is None):
        raise ConfigError(f"{where}: twilio_url and twilio_token_file belong together")
    if url is not None and not re.fullmatch(r"https://[^\s/?#@]+(/[^\s?#]*)?", url):
        raise ConfigError(f"{where}.twilio_url: must be an address like https://voice.example.org")
    if telephone.audiosocket is not None:
        address_of(telephone.audiosocket, f"{where}.audiosocket")
    if telephone.sip is not None:
        host, _ = address_of(telephone.sip, f"{where}.sip")
        if host in ("0.0.0.0", "::") and settings.ice_address is None:
            raise ConfigError(f"{where}.sip: name an address that others can reach, or set server.ice_address")
    for i, peer in enumerate(telephone.sip_peers):
        try:
            ipaddress.ip_network(peer)
        except ValueError as error:
            raise ConfigError(f"{where}.sip_peers[{i}]: must be an address or a network: {error}") from None
    for name, number in telephone.destinations.items():
        if not isinstance(number, str) or not number.strip():
            raise ConfigError(f"{where}.destinations.{name}: must be a telephone number in quotes")


def _check_mcp(settings: Settings) -> None:
    for i, one in enumerate(settings.mcp):
        if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s#]*)?", one.url):
            raise ConfigError(f"server.mcp[{i}].url: must be an address like https://docs.example.org/mcp")
        if not 0 < one.timeout_s < math.inf:
            raise ConfigError(f"server.mcp[{i}].timeout_s: must be above 0")
    if settings.mcp and find_spec("mcp") is None:
        raise ConfigError("server.mcp: needs the package mcp, which is not installed: pip install 'parley[mcp]'")
