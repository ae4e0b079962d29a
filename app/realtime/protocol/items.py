"""The items of a conversation: messages, tool calls and their outputs.

Immutable: a change creates a new item with the same id.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Literal

from msgspec import Struct

from engine import SPEAKER_RATE_HZ, TokenIds

Status = Literal["in_progress", "completed", "incomplete"]
Speaker = Literal["system", "user", "assistant"]


class MessageText(Struct, frozen=True):
    """Written text of any speaker."""

    text: str


class UserAudio(Struct, frozen=True):
    """The user's speech: int16 [samples] at MIC_RATE_HZ, and its transcript once it was transcribed."""

    pcm: Any
    transcript: str | None = None


class MessageImage(Struct, frozen=True, eq=False):
    """An image: uint8 [height, width, 3], and its original data URI."""

    pixels: Any
    url: str
    detail: str = "auto"
    shown: bool = True
    """Whether events contain it. Otherwise, like audio, it is sent only when the item is retrieved."""


class MessageVideo(Struct, frozen=True, eq=False):
    """A video: frames of one size (uint8 [height, width, 3]) at ``fps``, and its audio, if any (int16 [samples] at
    MIC_RATE_HZ).

    Camera input of a turn has ``times_s`` instead of ``fps``, in seconds from its first sample, and a ``still``: the
    newest frame's data URI, which represents it in events. Its audio is the UserAudio after it.

    ``apart``: the model supports no video, and receives the frames as images and the audio as the user's speech.
    """

    frames: tuple[Any, ...]
    fps: float
    still: str = ""
    pcm: Any = None
    times_s: tuple[float, ...] = ()
    apart: bool = False


class AssistantAudio(Struct, frozen=True):
    """A spoken answer.

    ``marks`` are rising pairs: samples, and the characters of ``text`` spoken once these were played, sent or not.
    ``played_samples`` is the part that the listener heard, at SPEAKER_RATE_HZ; None means all of it.
    """

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    sent_samples: int = 0
    played_samples: int | None = None
    truncated: bool = False
    """Whether the client truncated it; its transcript is then no longer shown."""

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // SPEAKER_RATE_HZ

    @property
    def played_text(self) -> str:
        """The words that were heard completely."""
        if self.played_samples is None:
            return self.text
        played = bisect_right(self.marks, self.played_samples, key=lambda mark: mark[0])
        return self._whole_words(self.marks[played - 1][1] if played else 0)

    def _whole_words(self, end: int) -> str:
        """Return the first ``end`` characters without a word that continues after them, as "it" in "it's"."""
        behind = self.text[end : end + 2].split()[:1]
        if behind and not self.text[end].isspace() and any(map(str.isalnum, behind[0])):
            end = max((at for at in range(end) if self.text[at].isspace()), default=0)
        return self.text[:end].rstrip()


Content = MessageText | UserAudio | MessageImage | MessageVideo | AssistantAudio


class MessageItem(Struct, frozen=True, kw_only=True):
    """One message of the user, the assistant or the system. ``token_ids`` are the token ids of a complete answer."""

    id: str
    role: Speaker
    content: tuple[Content, ...]
    status: Status = "completed"
    token_ids: TokenIds | None = None
    pinned: bool = False
    """Whether prompts keep it when they leave out the turns around it."""


class CallItem(Struct, frozen=True, kw_only=True):
    """A function call for the client; ``arguments`` is JSON text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status = "completed"


class CallOutputItem(Struct, frozen=True, kw_only=True):
    """The result of a function."""

    id: str
    call_id: str
    output: str
    status: Status = "completed"


class ToolListItem(Struct, frozen=True, kw_only=True):
    """The tools of an MCP server in the protocol's format; empty until they are listed."""

    id: str
    server_label: str
    tools: tuple[dict[str, Any], ...] = ()


class HostedCallError(Struct, frozen=True):
    kind: Literal["protocol_error", "tool_execution_error", "http_error"]
    code: int
    message: str


class HostedCallItem(Struct, frozen=True, kw_only=True):
    """A call of an MCP tool that the server runs; ``function`` is the tool's name in prompts."""

    id: str
    server_label: str
    name: str
    function: str
    arguments: str
    approval_request_id: str | None = None
    output: str | None = None
    error: HostedCallError | None = None
    status: Status = "in_progress"
    """``completed``: all arguments have arrived."""

    @property
    def result(self) -> str | None:
        """The result as text for the LLM; None until there is one."""
        return self.output if self.error is None else f"Error: {self.error.message}"


class ApprovalRequestItem(Struct, frozen=True, kw_only=True):
    """A call that the client must approve before the server runs it."""

    id: str
    server_label: str
    name: str
    function: str
    arguments: str
    status: Status = "in_progress"


class ApprovalResponseItem(Struct, frozen=True, kw_only=True):
    """The client's reply to an approval ``request``."""

    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None
    request: ApprovalRequestItem | None = None


HostedItem = ToolListItem | HostedCallItem | ApprovalRequestItem | ApprovalResponseItem
"""Items of tools that the server runs."""
Item = MessageItem | CallItem | CallOutputItem | HostedItem
