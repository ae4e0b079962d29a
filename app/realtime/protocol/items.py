"""The items of a conversation: messages with their contents, tool calls and their outputs.

Immutable: a change makes a new item of the same id. Knows no wire format and no engine.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Literal

from msgspec import Struct

from engine import SPEAKER_RATE_HZ, TokenIds

Status = Literal["in_progress", "completed", "incomplete"]
Speaker = Literal["system", "user", "assistant"]


class MessageText(Struct, frozen=True):
    """Typed text, of any speaker."""

    text: str


class UserAudio(Struct, frozen=True):
    """The user's speech: int16 [samples] at MIC_RATE_HZ, and its transcript once a stage has heard it."""

    pcm: Any
    transcript: str | None = None


class MessageImage(Struct, frozen=True, eq=False):
    """An image: uint8 [height, width, 3], and the data URI that it came as."""

    pixels: Any
    url: str
    detail: str = "auto"
    shown: bool = True
    """Whether events hold it; otherwise, as with sound, it is there for who asks for the item."""


class MessageVideo(Struct, frozen=True, eq=False):
    """A video: frames of one size, uint8 [height, width, 3], ``fps`` a second, and its sound, if it has any: int16
    [samples] at MIC_RATE_HZ.

    What a camera saw in a turn has ``times_s`` instead, in seconds from its first sample, and a ``still``, the newest
    frame's data URI, which stands for it in events. Its sound is the UserAudio behind it.

    ``apart``: the model takes no video, and gets the frames as pictures and the sound as what the user says.
    """

    frames: tuple[Any, ...]
    fps: float
    still: str = ""
    pcm: Any = None
    times_s: tuple[float, ...] = ()
    apart: bool = False


class AssistantAudio(Struct, frozen=True):
    """An answer that was said aloud.

    ``marks`` are (samples, characters of ``text`` that are spoken once these were played), rising, whether they were
    sent or not. ``played_samples`` is how much reached the listener, at SPEAKER_RATE_HZ; None is all of it.
    """

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    sent_samples: int = 0
    played_samples: int | None = None
    truncated: bool = False
    """Whether the client said where it was cut, so that its transcript is gone for good."""

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // SPEAKER_RATE_HZ

    @property
    def played_text(self) -> str:
        """The words that were heard to their end: none whose last sound had still to come."""
        if self.played_samples is None:
            return self.text
        played = bisect_right(self.marks, self.played_samples, key=lambda mark: mark[0])
        return self._whole_words(self.marks[played - 1][1] if played else 0)

    def _whole_words(self, end: int) -> str:
        """The first ``end`` characters, less a word that goes on behind them, as "it" does in "it's"."""
        behind = self.text[end : end + 2].split()[:1]
        if behind and not self.text[end].isspace() and any(map(str.isalnum, behind[0])):
            end = max((at for at in range(end) if self.text[at].isspace()), default=0)
        return self.text[:end].rstrip()


Content = MessageText | UserAudio | MessageImage | MessageVideo | AssistantAudio


class MessageItem(Struct, frozen=True, kw_only=True):
    """One turn of one speaker. ``token_ids`` are the raw ids of an answer that was given whole."""

    id: str
    role: Speaker
    content: tuple[Content, ...]
    status: Status = "completed"
    token_ids: TokenIds | None = None


class CallItem(Struct, frozen=True, kw_only=True):
    """The model asks the client to run a function; ``arguments`` is JSON text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status = "completed"


class CallOutputItem(Struct, frozen=True, kw_only=True):
    """The result that the function returned."""

    id: str
    call_id: str
    output: str
    status: Status = "completed"


class ToolListItem(Struct, frozen=True, kw_only=True):
    """The tools of an MCP server that the client named, as the protocol shows them; none until they are listed."""

    id: str
    server_label: str
    tools: tuple[dict[str, Any], ...] = ()


class HostedCallError(Struct, frozen=True):
    kind: Literal["protocol_error", "tool_execution_error", "http_error"]
    code: int
    message: str


class HostedCallItem(Struct, frozen=True, kw_only=True):
    """The server itself runs a tool of an MCP server; ``function`` is the tool's name in prompts."""

    id: str
    server_label: str
    name: str
    function: str
    arguments: str
    approval_request_id: str | None = None
    output: str | None = None
    error: HostedCallError | None = None
    status: Status = "in_progress"
    """``completed``: all of the arguments are there."""

    @property
    def result(self) -> str | None:
        """The result as the thinker reads it; None until there is one."""
        return self.output if self.error is None else f"Error: {self.error.message}"


class ApprovalRequestItem(Struct, frozen=True, kw_only=True):
    """A call that the client has to approve before the server runs it."""

    id: str
    server_label: str
    name: str
    function: str
    arguments: str
    status: Status = "in_progress"


class ApprovalResponseItem(Struct, frozen=True, kw_only=True):
    """The client's answer to such a ``request``."""

    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None
    request: ApprovalRequestItem | None = None


HostedItem = ToolListItem | HostedCallItem | ApprovalRequestItem | ApprovalResponseItem
"""Items of tools that the server runs."""
Item = MessageItem | CallItem | CallOutputItem | HostedItem
