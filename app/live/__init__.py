"""The OpenAI Live protocol on top of the session: settings, events in both directions, timeline and delegations."""

from app.live.config import LiveConfig, started
from app.live.dialect import LiveDialect
from app.live.timeline import OutputTimeline

__all__ = ["LiveConfig", "LiveDialect", "OutputTimeline", "started"]
