"""The opening of a Live session over WebRTC or telephone. Knows neither transport."""

from __future__ import annotations

import time

from app.limits.principal import Principal
from app.live import LiveConfig, LiveDialect, OutputTimeline
from app.realtime.ports import CALL
from app.transports.opening import Opening


def opening_of(caller: Principal, config: LiveConfig, id: str) -> Opening:
    """Return the opening of a session with this id and its client's settings."""
    dialect = LiveDialect(config, OutputTimeline(time.monotonic, filled=False), id=id)
    return Opening(caller, config.model[:200], config.patch(), CALL, dialect, config.history, config.idle)
