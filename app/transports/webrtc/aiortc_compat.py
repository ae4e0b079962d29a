"""The private parts of aiortc that are used or replaced here, as they were read in version 1.16.0.

With another version ``test_aiortc_compat`` says what to read again: all that bears a name below.
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
"""Private names: of a connection, a transceiver and a receiver; of the transports over DTLS and ICE; of the one over
SCTP."""

inside = partial(Inside, names=NAMES)
"""The private parts of an object of aiortc's. The ``connection`` of an ICE transport is aioice's."""
