"""The ``server:`` section of a deployment's YAML file, read as strictly as the rest of it.

Raises ConfigError that names the path and the nearest known key.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from app.client_address import check_proxies
from app.ids import NAME
from engine import ConfigError
from engine.deployment.config import address_of, build
from engine.deployment.installation import install_command

ICE_URL = re.compile(r"(stuns?|turns?):[^?:\s]+(:\d+)?(\?transport=(udp|tcp))?")
"""The address of a STUN or TURN server (RFC 7064, RFC 7065), as far as aiortc reads it: without addresses of IPv6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one client, and on all clients together."""

    sessions: int = 64
    """Open sessions. Further clients are refused with status 503 before the upgrade."""
    telephones_share: float = 0.5
    """Fraction of the sessions that telephone calls may use, so that browsers always find one. Set ``1`` on a server
    for telephones only."""
    calls: int = 16
    """WebRTC calls among the sessions. The audio of one call uses about 0.04 of a CPU core."""
    offers: int = 8
    """Calls whose client has not connected yet, so that unanswered offers never occupy all calls."""
    sidebands: int = 8
    """Additional sockets on one call. Each receives every event; a backend needs one."""
    waiting: int = 16
    """Clients in the admission queue (``?wait=true``). Further ones are refused."""
    wait_s: float = 60.0
    """Seconds that a client may wait for a session, or an HTTP request for a free slot."""
    session_s: float = 3600.0
    """Maximum length of a session in seconds, as at the hosted service."""
    audio_s: float = 300.0
    """Maximum length of a turn or of an uploaded recording in seconds."""
    answer_s: float = 300.0
    """Maximum seconds of speech in one answer. A longer answer ends as incomplete."""
    answer_tokens: int = 4096
    """Maximum text tokens in one answer, as far as the model's context allows."""
    items: int = 2000
    """Items of one conversation."""
    conversation_mb: float = 64.0
    """Megabytes of one conversation: half an hour of speech, or one large picture. Older speech is kept as text
    only."""
    held_mb: float = 1024.0
    """Megabytes held for all clients: conversations, requests, decoded media, client secrets and stored responses.
    Beyond it, requests get status 503. With pictures, set at least a tenth of the machine's memory."""
    kept_responses: int = 1000
    """Responses of ``/v1/responses`` stored for each key, for ``previous_response_id``. The least recently used one is
    dropped first."""
    kept_mb: float = 256.0
    """Megabytes of all stored responses, part of ``held_mb``. Beyond it, or if ``held_mb`` is used up, the key that
    stores the most loses its oldest response."""
    responses: int = 4
    """Concurrent responses of one session, including out-of-band responses."""
    answers: int = 16
    """Concurrent answers over HTTP, apart from the sessions. Further requests are refused with status 503."""
    answers_share: float = 0.5
    """Fraction of each stage's slots that HTTP may use, so that sessions find a free slot. Other HTTP requests wait up
    to ``wait_s``. Set ``1`` on a server without sessions."""
    secrets: int = 1000
    """Valid client secrets. A page needs one for each call; each holds at most 64 kB of settings, which count in
    ``held_mb``."""
    key_share: float = 0.5
    """Fraction of the places and memory that one key may use, at least one place of each kind. It applies if there are
    several keys. ``1`` removes the limit."""
    address_share: float = 0.75
    """The same for one IP address, or one IPv6 /64 network. This machine's own address is exempt. A proxy outside of
    ``trusted_proxies`` counts as one address."""
    idle_connections: int = 1024
    """Connections that wait for their client, except sessions and running answers. Beyond it, the one that has waited
    longest is closed."""
    idle_per_address: int = 128
    """The same for one IP address, or one IPv6 /64 network. This machine and ``trusted_proxies`` are exempt."""
    unsent_s: float = 10.0
    """Seconds of audio that may wait for a slow socket. Normal pacing needs 1.5 s."""
    messages_s: float = 400.0
    """Messages per second from one client, with bursts of ten seconds. A page that sends every 128 microphone samples
    needs 188. Faster clients are slowed, and closed (1008) after a minute."""
    received_mb_s: float = 4.0
    """Megabytes per second from one client, and to it, with bursts of ten seconds. Faster clients are slowed."""
    key_received_mb_s: float = 32.0
    """The same for all clients of one key. Sixty speaking users of a backend send 4 MB per second."""
    address_received_mb_s: float = 16.0
    """The same for all clients of one IP address, or one IPv6 /64 network. This machine is exempt."""
    send_timeout_s: float = 2.0
    """Seconds after which a client that reads nothing is disconnected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Turn detection settings that the protocol has no field for."""

    min_speech_ms: int = 64
    """Milliseconds of uninterrupted speech that start a turn. Clicks are shorter."""
    echo_guard: bool = True
    """Whether the server distinguishes the user from its own answer in the microphone signal."""
    echo_cancellation: Literal["never", "auto", "always"] = "auto"
    """Whether the server removes the echo of its answers from the microphone signal. ``auto``: once it finds an echo.
    Clients with echo cancellation of their own are then left alone."""
    ahead: bool = True
    """Whether the model processes speech while the user is still speaking. Otherwise it receives the turn at its
    end."""
    end_of_turn: str = "auto"
    """Model with which ``semantic_vad`` ends turns: ``smart_turn`` (sound, words and intonation), ``words`` (words and
    intonation), or an ONNX file that replaces Smart Turn. ``auto``: ``words`` if the ASR knows complete requests, as
    nano's does, otherwise ``smart_turn``."""
    speaker: Literal["any", "first"] = "any"
    """Default of ``turn_detection.speaker``: whose speech opens turns. ``first`` needs `parley pull campplus`."""
    guess_ms: int = 120
    """Milliseconds of silence after which an answer is prepared. It is played once the turn is over, or dropped if the
    user goes on. ``0`` disables it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IceServer:
    """A STUN or TURN server, as a browser's RTCPeerConnection takes it."""

    urls: tuple[str, ...]
    """Addresses like ``stun:host:port`` or ``turn:host:port``. The host is a name or an IPv4 address."""
    username: str | None = None
    """User name for the TURN server."""
    credential: str | None = None
    """Password for the TURN server."""
    secret: str | None = None
    """Secret shared with the TURN server (coturn's ``static-auth-secret``), instead of ``username`` and ``credential``.
    Each client then gets its own name and password, valid for two hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telephone:
    """Telephone calls (app/TELEPHONES.md). Without ``twilio_url``, ``audiosocket`` and ``sip`` there are none."""

    protocol: Literal["realtime", "live"] = "realtime"
    """Protocol of ``session`` and of the backends that join a call: at ``/v1/realtime?call_id=…`` or
    ``/v1/live/sessions/…/attach``."""
    session: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Initial settings of each call's session, in the protocol's own form: ``instructions``, ``audio.output.voice``,
    ``tools`` (in Live ``delegation``) and others."""
    greeting: str | None = None
    """Instructions for the first answer, with which the model opens the call. Without it, the caller speaks first."""
    hang_up: bool = True
    """Whether the model may end the call with the function ``hang_up``, which the server runs."""
    destinations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Names and telephone numbers to which the model may transfer a call with the function ``transfer``."""
    key: str = ""
    """Name of the key that owns the calls. A backend with this key may listen to them, run their tools and end them
    (``?call_id=``)."""
    twilio_url: str | None = None
    """The server's public address for Twilio, like ``https://voice.example.org``. Set the number's "a call comes in" to
    ``/v1/telephone/twilio`` there."""
    twilio_token_file: str | None = None
    """File with the auth token of the Twilio account. Unsigned requests are refused."""
    audiosocket: str | None = None
    """Address, like ``127.0.0.1:9092``, at which Asterisk connects calls by AudioSocket. The protocol has no
    authentication, so restrict access to the port."""
    sip: str | None = None
    """UDP address, like ``192.0.2.7:5060``, for SIP calls. Their audio uses ports of ``ice_ports`` on the same host.
    Behind NAT, set ``ice_address``."""
    sip_peers: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """Addresses or networks from which SIP is accepted. Other datagrams are dropped."""
    sip_user: str | None = None
    """User name that SIP callers must know, with the password in ``sip_password_file`` (digest authentication). Set it
    where others can send from an address of ``sip_peers``."""
    sip_password_file: str | None = None
    """File with the password of ``sip_user``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server whose tools clients may use. This server calls it with the client's key."""

    url: str
    """The MCP server's address, like ``https://docs.example.org/mcp`` (streamable HTTP). Clients send the same address
    as ``server_url``."""
    private: bool = False
    """Whether the address may belong to this machine or a private network. Otherwise such addresses are refused."""
    timeout_s: float = 30.0
    """Seconds that the MCP server may take to list its tools, and for each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Facts that sessions remember (docs/memory.md). Without ``path`` there are none."""

    path: str | None = None
    """SQLite file with the facts. The server creates it for its own user only; its folder must exist and be
    writable."""
    facts: int = 50
    """Facts of one user. A further one is refused."""
    key_mb: float = 1.0
    """Megabytes of the facts of one key. A deletion rewrites the file, which takes some milliseconds per megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Otel:
    """Traces for OpenTelemetry (docs/deployment.md). Without ``endpoint`` there are none."""

    endpoint: str | None = None
    """Address of a collector for OTLP over HTTP, like ``http://127.0.0.1:4318/v1/traces``."""
    contents: bool = False
    """Whether spans of sessions contain the words of the conversation, and the arguments and results of tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The app's own settings."""

    host: str = "127.0.0.1"
    """Address to listen on. ``0.0.0.0`` makes the server reachable from other machines."""
    port: int = 8000
    """Port to listen on. ``0`` selects any free port."""
    name: str | None = None
    """Name of this server among several behind one proxy, like ``a`` (at most 16 of ``a-z``, ``0-9`` and ``-``). Ids
    such as ``rtc_a_5b1f…`` contain it, so that the proxy can route by id."""
    https: str | None = None
    """``auto`` for a self-signed certificate, or the path of a certificate (PEM). Without it the server uses plain
    HTTP."""
    https_key: str | None = None
    """Path of the certificate's private key, if it is in another file."""
    keys_file: str | None = None
    """File of API keys, one per line: ``name: key``, or the key alone (``#`` starts a comment). A key has at least 16
    characters. Every route then requires a key, except ``/livez``, ``/health``, the page's files, ``/docs``,
    ``/openapi.json`` and signed Twilio requests. SECURITY.md has the file's rules."""
    metrics: Literal["key", "open"] = "key"
    """``key``: ``/metrics`` requires a key if any is configured. ``open``: anyone who reaches the server may read
    it."""
    metrics_key_file: str | None = None
    """File of the keys that may read ``/metrics``, which contains the names of users' keys. Users' keys may then not
    read it."""
    admin_key_file: str | None = None
    """File of the keys that may change the worker fleet at ``/admin``. Without it, nobody may."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in the Host header, in addition to localhost and IP addresses. This prevents DNS
    rebinding."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may connect, in addition to the server's own, like ``https://example.org``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, like ``10.0.0.0/24``. Only their ``X-Forwarded-For`` and
    ``X-Forwarded-Proto`` are used, so each proxy must set these headers itself."""
    ice_servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers for calls through NAT, on both sides. Each has ``urls``, and either ``username`` and
    ``credential`` or ``secret``."""
    ice_ports: tuple[int, ...] = ()
    """First and last UDP port for calls, for firewalls and containers. Without it any free port is used. A call takes
    one port on each address of the machine."""
    ice_address: str | None = None
    """Public IP address of this machine for calls, such as the container's host or a one-to-one NAT. Clients receive it
    instead of the machine's own addresses."""
    ice_relay_only: bool = False
    """Whether calls use only TURN servers of ``ice_servers``. Clients then receive no address of this machine."""
    strict_names: bool = False
    """Whether HTTP refuses names of models and voices that are not loaded. Otherwise the loaded ones serve every
    name."""
    instructions: str = ""
    """Instructions of Realtime sessions and telephone calls, shown in ``session.created``, until their client sets
    others. Language models also append the ``instructions_suffix`` of their stage."""
    camera_every_s: float = 0.5
    """Minimum seconds between two frames of a user's camera. A model may want fewer (nano: one per second)."""
    summarize_at: float = 0.75
    """Fraction of the model's room for a conversation above which a summary replaces older turns in prompts. ``1``:
    never; prompts then omit the oldest turns. nano writes none."""
    drain_s: float = 10.0
    """Seconds that running answers may continue after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    """Limits on clients: see "Limits"."""
    turns: TurnSettings = field(default_factory=TurnSettings)
    """Turn detection: see "Turns"."""
    telephone: Telephone = field(default_factory=Telephone)
    """Telephone calls: see "Telephones"."""
    mcp: tuple[McpServer, ...] = ()
    """MCP servers whose tools clients may use: see "MCP servers". By default, none."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """Memory across sessions: see "Memory". By default, none."""
    otel: Otel = field(default_factory=Otel)
    """Traces: see "Traces". By default, none."""
    recordings: str | None = None
    """Folder for recordings of sessions whose clients ask for one with ``?record=true``. Without it, none is
    recorded."""


def settings_of(section: Mapping[str, Any]) -> Settings:
    """Build the settings from a ``server:`` section. Raises ConfigError."""
    settings: Settings = build(Settings, dict(section), "server")
    if not 0 <= settings.port <= 65535:
        raise ConfigError("server.port: must be from 0 to 65535")
    if settings.name is not None and NAME.fullmatch(settings.name) is None:
        raise ConfigError("server.name: must be 1 to 16 characters of a-z, 0-9 and '-', and not start with '-'")
    for name in ("telephones_share", "answers_share", "key_share", "address_share"):
        if not 0 < getattr(settings.limits, name) <= 1:
            raise ConfigError(f"server.limits.{name}: must be greater than 0 and at most 1")
    for one in fields(settings.limits):
        if not 0 < getattr(settings.limits, one.name) < math.inf:
            raise ConfigError(f"server.limits.{one.name}: must be a positive, finite number")
    if settings.metrics == "open" and settings.metrics_key_file is not None:
        raise ConfigError("server.metrics_key_file: has no effect while server.metrics is 'open'")
    if not 0 < settings.camera_every_s < math.inf:
        raise ConfigError("server.camera_every_s: must be a positive, finite number")
    if not 0 < settings.summarize_at <= 1:
        raise ConfigError("server.summarize_at: must be greater than 0 and at most 1")
    if settings.recordings is not None and not Path(settings.recordings).is_dir():
        raise ConfigError(f"server.recordings: {settings.recordings!r} is no folder. Create it first")
    check_proxies(settings.trusted_proxies)
    _check_ice(settings)
    _check_telephone(settings)
    _check_mcp(settings)
    _check_otel(settings.otel)
    for name in ("facts", "key_mb"):
        if not 0 < getattr(settings.memory, name) < math.inf:
            raise ConfigError(f"server.memory.{name}: must be a positive, finite number")
    if not 0 <= settings.drain_s < math.inf:
        raise ConfigError("server.drain_s: must be a finite number of at least 0")
    return settings


def _check_ice(settings: Settings) -> None:
    for i, one in enumerate(settings.ice_servers):
        if not one.urls or not all(map(ICE_URL.fullmatch, one.urls)):
            raise ConfigError(
                f"server.ice_servers[{i}].urls: must be addresses like stun:host:port or turn:host:port, "
                "with a host name or an IPv4 address"
            )
        if one.secret is not None and (not one.secret or one.username is not None or one.credential is not None):
            raise ConfigError(f"server.ice_servers[{i}].secret: must not be combined with username or credential")
    ports = settings.ice_ports
    if ports and not (len(ports) == 2 and 1024 <= ports[0] <= ports[1] <= 65535):
        raise ConfigError("server.ice_ports: must be two ports from 1024 to 65535, the lower one first")
    if settings.ice_relay_only and not any(url.startswith("turn") for one in settings.ice_servers for url in one.urls):
        raise ConfigError("server.ice_relay_only: requires a TURN server in server.ice_servers")
    if settings.ice_address is not None:
        try:
            ipaddress.ip_address(settings.ice_address)
        except ValueError:
            raise ConfigError(f"server.ice_address: {settings.ice_address!r} is not an IP address") from None


def _check_telephone(settings: Settings) -> None:
    telephone, where = settings.telephone, "server.telephone"
    url = telephone.twilio_url
    if (url is None) != (telephone.twilio_token_file is None):
        raise ConfigError(f"{where}: set both twilio_url and twilio_token_file, or neither")
    if url is not None and not re.fullmatch(r"https://[^\s/?#@]+(/[^\s?#]*)?", url):
        raise ConfigError(f"{where}.twilio_url: must be a URL like https://voice.example.org")
    if telephone.audiosocket is not None:
        address_of(telephone.audiosocket, f"{where}.audiosocket")
    if telephone.sip is not None:
        host, _ = address_of(telephone.sip, f"{where}.sip")
        if host in ("0.0.0.0", "::") and settings.ice_address is None:
            raise ConfigError(f"{where}.sip: use an address that others can reach, or set server.ice_address")
    if (telephone.sip_user is None) != (telephone.sip_password_file is None):
        raise ConfigError(f"{where}: set both sip_user and sip_password_file, or neither")
    if telephone.sip_user is not None and telephone.sip is None:
        raise ConfigError(f"{where}.sip_user: has no effect without {where}.sip")
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
            raise ConfigError(
                f"server.mcp[{i}].url: must be an http or https URL without user name or fragment, "
                "like https://docs.example.org/mcp"
            )
        if not 0 < one.timeout_s < math.inf:
            raise ConfigError(f"server.mcp[{i}].timeout_s: must be a positive, finite number")
    if settings.mcp and find_spec("mcp") is None:
        raise ConfigError(f"server.mcp: needs the package mcp, which is not installed: {install_command('mcp')}")


def _check_otel(otel: Otel) -> None:
    if otel.endpoint is None:
        if otel.contents:
            raise ConfigError("server.otel.contents: has no effect without server.otel.endpoint")
        return
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", otel.endpoint):
        raise ConfigError(
            "server.otel.endpoint: must be an http or https URL without user name, like http://127.0.0.1:4318/v1/traces"
        )
    if find_spec("opentelemetry.exporter") is None:
        raise ConfigError(
            f"server.otel: needs the OpenTelemetry packages, which are not installed: {install_command('otel')}"
        )
