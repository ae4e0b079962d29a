"""The terms of a Live session whose sound a call carries, over WebRTC or of a telephone. Knows neither."""

from __future__ import annotations

import time
from dataclasses import replace

from app.limits.principal import Principal
from app.live import LiveConfig, LiveDialect, OutputTimeline
from app.live.sound import OVERLAP_MS
from app.realtime.ports import CALL
from app.transports.connection import Opening


def opening_of(caller: Principal, config: LiveConfig, id: str) -> Opening:
    """The terms of the session of that id, as its client's settings have them."""
    dialect = LiveDialect(config, OutputTimeline(time.monotonic, filled=False), id=id)
    profile = replace(CALL, overlap_ms=OVERLAP_MS)
    return Opening(caller, config.model[:200], config.patch(), profile, dialect, config.history)
