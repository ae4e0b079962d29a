"""The output of a session: making responses, pacing their audio to the listener, and stopping them.

Independent of wire formats and sockets.
"""

from app.realtime.output.hosted_tools import HostedTools
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.responses import Responses

__all__ = [
    "HostedTools",
    "OutputEvent",
    "Responses",
]
