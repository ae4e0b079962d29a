"""Private parts of aiortc that are used or replaced here, verified for version 1.16.0.

For another version, ``test_aiortc_compat`` lists what to verify again: everything named below.
"""

from __future__ import annotations

from functools import partial

from app.transports.inside import Inside

READ = "1.16.0"
NAMES = frozenset(
    {"_RTCPeerConnection__connect", "_codecs", "_RTCRtpReceiver__jitter_buffer", "_RTCRtpReceiver__nack_generator"}
    | {"_recv_next", "_rtp_router", "_recv", "_connection"}
    | {"_handle_data", "_receive_data_chunk", "_receive_sack_chunk", "_data_channel_receive", "_send_chunk"}
    | {"_get_inbound_stream", "_mark_received", "_inbound_streams", "_data_channels", "_local_tsn"}
    | {"_last_received_tsn", "_sack_misordered", "_sack_duplicates"}
)
"""Private names of connections, transceivers, receivers, and of the DTLS, ICE and SCTP transports."""

inside = partial(Inside, names=NAMES)
"""The private parts of an aiortc object. The ``connection`` of an ICE transport belongs to aioice."""
