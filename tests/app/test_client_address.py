"""Canonical addresses, subscribers, and forwarded headers, which only trusted proxies may set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.client_address import Peers, may_name, own_address, plain, subscriber
from app.limits.auth_throttle import AT_ONCE
from app.settings import settings_of
from engine import ConfigError
from tests.app.rig import keys_file, running, script_spec


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("2001:db8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_an_address_is_written_in_one_way(address: str, expected: str) -> None:
    assert plain(address) == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_a_subscriber_has_one_ipv4_address_or_64_bits_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (subscriber(one) == subscriber(other)) is same


@pytest.mark.parametrize("peer", ["", "unix"])
def test_a_peer_without_an_address_is_no_trusted_proxy(peer: str) -> None:
    assert own_address(["10.0.0.0/8"])(peer) == peer


async def seen(peer: str, forwarded: str | None = None, proto: str | None = None, trusted: tuple[str, ...] = ()) -> Any:
    """The client's address and the scheme that the rest of the server sees."""
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded is not None else []
    headers += [(b"x-forwarded-proto", proto.encode())] if proto is not None else []
    scope: dict[str, Any] = {"type": "http", "scheme": "http", "client": (peer, 40_000), "headers": headers}

    async def app(inner: Any, receive: Any, send: Any) -> None:
        scope.update(inner)

    await Peers(app, trusted)(scope, None, None)  # pyright: ignore[reportArgumentType]
    return scope["client"][0], scope["scheme"]


async def test_by_default_nobody_is_believed() -> None:
    """F12: whoever spoke from loopback could name any address, and was never throttled."""
    assert await seen("127.0.0.1", "10.9.9.9", "https") == ("127.0.0.1", "http")
    assert await seen("::1", "10.9.9.9") == ("::1", "http")


async def test_a_named_proxy_says_who_its_client_is() -> None:
    assert await seen("127.0.0.1", "10.9.9.9", "https", ("127.0.0.1",)) == ("10.9.9.9", "https")
    assert await seen("10.1.0.7", "10.9.9.9", None, ("10.1.0.0/24",)) == ("10.9.9.9", "http")
    assert await seen("10.1.1.7", "10.9.9.9", "https", ("10.1.0.0/24",)) == ("10.1.1.7", "http")


async def test_what_the_client_wrote_itself_stands_before_what_counts() -> None:
    chain = "6.6.6.6, 10.9.9.9, 10.1.0.8"
    assert await seen("10.1.0.7", chain, None, ("10.1.0.0/24",)) == ("10.9.9.9", "http")


async def test_ipv4_clients_of_a_socket_on_ipv6_are_ipv4_clients_everywhere() -> None:
    assert await seen("::ffff:10.0.0.1") == ("10.0.0.1", "http")
    assert await seen("::ffff:10.1.0.7", "::ffff:10.9.9.9", None, ("10.1.0.7",)) == ("10.9.9.9", "http")


@pytest.mark.parametrize("one", ["proxy.example", "10.0.0.1/24", "*", ""])
def test_a_proxy_is_named_by_its_address(one: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.trusted_proxies\[1\]: must be an address or a network"):
        settings_of({"trusted_proxies": ["127.0.0.1", one]})


@pytest.mark.fault("S2.4")
@pytest.mark.parametrize(("trusted", "last"), [([], 429), (["127.0.0.1"], 401)])
async def test_forged_headers_are_no_way_round_the_throttle(trusted: list[str], last: int, tmp_path: Path) -> None:
    """Unless the settings say that whoever speaks from this address writes the truth."""
    spec = script_spec(keys_file=keys_file(tmp_path, "sk-of-this-server-alone"), trusted_proxies=trusted)
    async with running(spec) as server, httpx.AsyncClient(base_url=server.http) as http:
        forged = ({"authorization": "Bearer wrong", "x-forwarded-for": f"10.0.0.{n}"} for n in range(AT_ONCE + 1))
        answers = [await http.get("/v1/models", headers=headers) for headers in forged]
        assert answers[-1].status_code == last


HERE, LAN, LINK = "127.0.0.1", "192.168.1.7", "169.254.169.254"
PUBLIC = {"1.1.1.1", "2606:4700::1"}
PRIVATE = {LAN, "10.0.0.9", "100.64.0.3", "fd00::7", "::ffff:10.0.0.9", "64:ff9b::10.0.0.9", "2002:a00:9::"}
OWN, NEIGHBOURS = {HERE, "::1", "0.0.0.0", "::"}, {LINK, "fe80::1"}
GROUPS = {"224.0.1.1", "239.1.1.1", "ff0e::1"}


@pytest.mark.parametrize(
    ("client", "named"),
    [
        ("8.8.8.8", PUBLIC),
        (LAN, PUBLIC | PRIVATE),
        (HERE, PUBLIC | PRIVATE | OWN),
        ("", PUBLIC | PRIVATE | OWN),
        ("fe80::5", PUBLIC | PRIVATE | NEIGHBOURS),
    ],
)
def test_a_client_names_public_addresses_and_those_as_near_as_its_own(client: str, named: set[str]) -> None:
    """A browser on a local network names its own address there; one on the internet makes nobody ask machines here."""
    every = PUBLIC | PRIVATE | OWN | NEIGHBOURS | GROUPS
    assert {one for one in every | {"pbx.example.org"} if may_name(client, one)} == named
