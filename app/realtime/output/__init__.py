"""The answers of a session: what they are asked with, how they are paced to the listener, what stops them."""

from app.realtime.output.hosted_tools import HostedTools
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.responses import Responses

__all__ = [
    "HostedTools",
    "OutputEvent",
    "Responses",
]
