"""aiortc is inside as it was when its private parts were read; else the test says what to read again."""

from __future__ import annotations

import pytest
from aiortc import RTCPeerConnection, RTCRtpReceiver, RTCRtpTransceiver, RTCSctpTransport
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtcdtlstransport import RTCDtlsTransport, RtpRouter
from aiortc.rtcicetransport import RTCIceTransport
from aiortc.rtcrtpreceiver import NackGenerator
from aiortc.rtcsctptransport import InboundStream

from app.transports.webrtc import aiortc_compat
from tests.app.transports.library import Part, check_parts, check_version

PRIVATE = (
    Part(RTCPeerConnection, {"_RTCPeerConnection__connect": "async"}),
    Part(RTCRtpTransceiver, attributes=frozenset({"_codecs"})),
    Part(RTCRtpReceiver, attributes=frozenset({"__jitter_buffer", "__nack_generator"})),
    Part(RTCDtlsTransport, {"_recv_next": "async"}, frozenset({"_rtp_router"})),
    Part(RTCIceTransport, attributes=frozenset({"_recv", "_connection"})),
    Part(
        RTCSctpTransport,
        {
            "_handle_data": "async data",
            "_receive_data_chunk": "async chunk",
            "_receive_sack_chunk": "async chunk",
            "_data_channel_receive": "async stream_id pp_id data",
            "_send_chunk": "async chunk",
            "_get_inbound_stream": "stream_id",
            "_mark_received": "tsn",
        },
        frozenset(
            {"_inbound_streams", "_data_channels", "_local_tsn"}
            | {"_last_received_tsn", "_sack_misordered", "_sack_duplicates"}
        ),
    ),
)
REPLACED = (
    Part(RtpRouter, {"route_rtp": "packet", "route_rtcp": "packet"}, frozenset({"ssrc_table"})),
    Part(JitterBuffer, {"add": "packet"}),
    Part(NackGenerator, {"add": "packet"}, frozenset({"max_seq", "missing"})),
    Part(
        InboundStream,
        {"add_chunk": "chunk", "pop_messages": "", "prune_chunks": "tsn"},
        frozenset({"sequence_number"}),
    ),
)
"""Public names of aiortc's inside, of which ours take the place."""


def test_the_version_is_the_one_that_was_read() -> None:
    check_version("aiortc", aiortc_compat.READ)


def test_what_is_used_is_as_it_was_read() -> None:
    check_parts(*PRIVATE, *REPLACED)


def test_all_private_names_were_read() -> None:
    assert {name for part in PRIVATE for name in part.names} == aiortc_compat.NAMES


def test_control_a_changed_part_is_named() -> None:
    class Changed:
        def route_rtp(self, packet: object, more: object) -> None: ...

    part = Part(Changed, {"route_rtp": "packet", "route_rtcp": "packet"}, frozenset({"ssrc_table"}))
    assert len(part.changes()) == 3
    with pytest.raises(AssertionError, match="ssrc_table is gone"):
        check_parts(part)
    with pytest.raises(AssertionError, match=r"1\.15\.0 was read"):
        check_version("aiortc", "1.15.0")
