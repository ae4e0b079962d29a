"""The Live dialect of the session's core: its settings, its events both ways, its timeline and its delegations."""

from app.live.config import LiveConfig, started
from app.live.dialect import LiveDialect
from app.live.timeline import OutputTimeline

__all__ = ["LiveConfig", "LiveDialect", "OutputTimeline", "started"]
