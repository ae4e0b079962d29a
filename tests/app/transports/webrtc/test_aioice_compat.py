"""aioice is inside as it was when its private parts were read; else the test says what to read again."""

from __future__ import annotations

import inspect

import aioice.ice
from aioice import Connection
from aioice.ice import StunProtocol

from app.transports.webrtc import aioice_compat
from tests.app.transports.library import Part, check_parts, check_version, parameters

PRIVATE = Part(Connection, attributes=aioice_compat.NAMES)
REPLACED = (
    Part(
        Connection,
        {
            "get_component_candidates": "async component addresses timeout",
            "request_received": "message addr protocol",
            "data_received": "data component",
        },
    ),
    Part(
        StunProtocol,
        {"__init__": "receiver", "datagram_received": "data addr", "send_stun": "message addr"},
        frozenset({"receiver", "transactions", "local_candidate", "transport"}),
    ),
)
"""Public names of aioice's inside that ``ice.py`` extends, calls or takes the place of."""


def test_the_version_is_the_one_that_was_read() -> None:
    check_version("aioice", aioice_compat.READ)


def test_what_is_used_is_as_it_was_read() -> None:
    check_parts(PRIVATE, *REPLACED)
    relayed = "component hide_related_address protocol_factory turn_server turn_username turn_password"
    assert parameters(aioice.ice, "relayed_candidate") == f"async {relayed} turn_ssl turn_transport"
    assert parameters(aioice.ice, "server_reflexive_candidate") == "async protocol stun_server"


def test_the_number_of_failures_is_read_where_it_is_set() -> None:
    assert aioice.ice.CONSENT_FAILURES == 4
    assert "failures >= CONSENT_FAILURES" in inspect.getsource(Connection)
