"""The types that all other modules share: messages, requests, and what a stage declares about itself.

Imports no other module of Parley.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

MIC_RATE_HZ = 16_000
"""Speech enters the engine as mono int16 at this rate, which the ears and audio encoders of every family take."""

SPEAKER_RATE_HZ = 24_000
"""Speech leaves the engine as mono float32 in [-1, 1] at this rate."""

Want = Literal["transcript", "text", "audio"]
"""A part of an answer that a client may want: the transcript of the user's speech, the answer's text, or its audio."""

ANSWER: frozenset[Want] = frozenset({"transcript", "text", "audio"})
IN_WRITING: frozenset[Want] = frozenset({"transcript", "text"})

Ability = Literal["text", "audio", "image", "video", "tools", "speech"]


class TextPart(msgspec.Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    text: str


class AudioPart(msgspec.Struct, frozen=True, tag="audio", forbid_unknown_fields=True):
    """Speech of a finished turn."""

    pcm: Any
    """int16 [samples] at MIC_RATE_HZ."""
    transcript: str | None = None
    """Its transcript, once a stage has made one."""


class ImagePart(msgspec.Struct, frozen=True, tag="image", forbid_unknown_fields=True):
    """A picture."""

    pixels: Any
    """uint8 [height, width, 3], already within the size limits."""


class VideoPart(msgspec.Struct, frozen=True, tag="video", forbid_unknown_fields=True):
    """A video."""

    frames: Any
    """uint8 [frames, height, width, 3]."""
    fps: float
    """Frames per second."""
    pcm: Any = None
    """Its audio: int16 [samples] at MIC_RATE_HZ; None without any."""
    times_s: tuple[float, ...] = ()
    """The time of each frame in seconds from the first sample, for frames of a live camera: at most one in each
    ``1 / fps``, sometimes none. Empty for evenly spaced frames."""


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call", forbid_unknown_fields=True):
    name: str
    arguments: str
    call_id: str


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result", forbid_unknown_fields=True):
    call_id: str
    output: str


Part = TextPart | AudioPart | ImagePart | VideoPart | ToolCallPart | ToolResultPart
Role = Literal["system", "user", "assistant", "tool"]


class TokenIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The raw token ids of an answer."""

    tokenizer: str
    """The tokenizer that made them (``ModelInfo.tokenizer``); to another one they mean nothing."""
    ids: tuple[int, ...]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: Role
    parts: tuple[Part, ...]
    token_ids: TokenIds | None = None
    """The raw ids of an answer. Prompts of a model with the same tokenizer use them instead of encoding the text
    again."""

    def ids_of(self, tokenizer: str) -> tuple[int, ...]:
        """Return the raw ids if that tokenizer made them; else none, and the text must be encoded again."""
        return self.token_ids.ids if self.token_ids is not None and self.token_ids.tokenizer == tokenizer else ()


class ToolDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that the client offers."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of its arguments."""


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the next token is drawn. None leaves the family's default."""

    greedy: bool = False
    """Whether to take the most probable token. Overrides the other fields."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    guidance: float = 1.0
    """How far a guided stage goes from the companion's result towards the main role's (1) and beyond it (above 1).
    Values other than 1 need a request with the role that the family names (nano's talker: "negative")."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for one answer."""

    id: str
    session: str
    """The conversation that it belongs to. The requests of a session share cached prefixes."""
    messages: tuple[Message, ...]
    """The conversation up to and including the user's turn."""
    owner: str = ""
    """The client or user that it belongs to. Owners take turns for slots; the owner with the fewest slots is next."""
    live: bool = False
    """Whether the user's turn (or its rest) arrives as Speech on the inputs of ``engine.open``, until they end."""
    camera: bool = False
    """Whether frames of the user's camera arrive together with that speech."""
    wants: frozenset[Want] = ANSWER
    """The parts of the answer to make. Only the stages that bring them take part."""
    say: str | None = None
    """A text to speak verbatim; nothing is generated."""
    voice: str | None = None
    """The id of a Voice; None: the model's first."""
    speed: float = 1.0
    """The speaking rate, relative to the voice's own."""
    sampling: Sampling = Sampling()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of the one tool to call. A family that cannot obey it refuses."""
    max_text_tokens: int = 512
    """The longest answer, in tokens of text."""
    max_audio_s: float = 160.0
    """The longest answer, in seconds of audio."""
    lead_s: float | None = None
    """Seconds by which the answer's audio may be made ahead of its playback; None: as fast as it is read."""
    dump: bool = False
    """Whether codec frames and prompt ids are handed out as well."""
    preemptible: bool = False
    """Whether it takes free slots only, and ends as Preempted once another request waits for one.

    From ``Chunks.claim`` on, it keeps the slots that it has.
    """
    roles: tuple[str, ...] = ("main",)
    """The roles that stages with a ``group`` compute for one answer: "main", then its companions."""

    @property
    def offers(self) -> tuple[ToolDefinition, ...]:
        """The tools that the answer may call."""
        if self.tool_choice in ("auto", "required"):
            return self.tools
        return tuple(tool for tool in self.tools if self.tool_choice == tool.name != "none")

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a call of one of the offered tools."""
        return self.tool_choice not in ("auto", "none")

    @property
    def hears(self) -> bool:
        """Whether the user speaks: live, or as audio of the last message."""
        return self.live or bool(self.recorded)

    @property
    def recorded(self) -> list[Pcm]:
        """The speech of the last message that has no transcript yet."""
        last = self.messages[-1].parts if self.messages else ()
        return [part.pcm for part in last if isinstance(part, AudioPart) and part.transcript is None]

    @property
    def speaks(self) -> bool:
        return "audio" in self.wants


class TokenCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Estimated prompt tokens, rather too many than too few: conversations are truncated by them."""

    character: float = 0.4
    """Per character of messages."""
    instruction: float = 0.4
    """Per character of system messages and of tool schemas."""
    audio_s: float = 14.0
    """Per second of audio."""
    image: float = 1500.0
    """Per picture."""
    frame: float = 110.0
    """Per frame of a video."""
    message: float = 6.0
    """Per message, for the tokens around it."""


class Voice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A voice that a request may name."""

    id: str
    name: str
    """A description for people, such as "Slt, a woman"."""
    language: str = ""
    """BCP 47, as "en-US"; empty if the voice speaks every language of the model."""


PICTURES = 3
"""The number of newest frames that a model of pictures (not video) gets of a turn: two show that something moves, a
third shows where to."""


class CameraFeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a user's camera that a model takes while the user speaks."""

    fps: float = 1.0
    """Maximum frames per second."""
    side: int = 640
    """Maximum length of a frame's longer side, in pixels."""
    most: int = PICTURES
    """Maximum frames per turn."""


class Facets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts that a stage contributes to the description of its pipeline; ``engine.pipeline`` merges them."""

    model: str = ""
    """The name of a thinker's model: the pipeline's name if the configuration gives none."""
    voices: tuple[Voice, ...] = ()
    """The voices that it speaks with; the first one is the default."""
    languages: tuple[str, ...] = ()
    """Languages that a voice speaks, as BCP 47."""
    heard_languages: tuple[str, ...] = ()
    """Languages that ears, or a thinker that hears, understand, as BCP 47."""
    sees: frozenset[Ability] = frozenset()
    """"image", "video", or both."""
    camera: CameraFeed | None = None
    """Set by a stage that watches while the user speaks. It gets VideoFrames if it takes them. Otherwise it is asked to
    ``prepare`` each frame, and gets the newest as pictures in its request if it comes after the ears."""
    frame_s: float | None = None
    """Length of one codec frame in seconds, for a stage that turns frames into audio."""
    own_chunks: bool = False
    """Whether it cuts its audio by its own rule, so that the configuration's ``chunks`` have no effect."""
    context: int | None = None
    """The longest prompt and answer together, in tokens."""
    cost: TokenCost | None = None
    tokenizer: str = ""
    """The vocabulary of the token ids in a thinker's text. Different vocabularies must have different names."""
    examples: tuple[str, ...] = ()
    """Sentences that the model understands, for people who try it for the first time."""
    leaving: str = ""
    """One sentence that names who receives which part of a conversation that leaves this machine; empty if none
    does."""
    hears_for: str = ""
    """The thinker's model whose requests are all that these ears understand; empty for other ears."""
    reduces_noise: bool = False
    """Whether these ears reduce noise themselves: they understand audio that was denoised before less well."""


class StageInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stage declares about itself. ``engine.chunk.kinds`` makes sets of kinds of chunks."""

    name: str = ""
    """Its name in the pipeline, which sets it."""
    order: int = 0
    """Its place in the pipeline, which sets it; from 0."""
    takes: frozenset[str] = frozenset()
    """Kinds of chunks that it reads, alternatives to each other."""
    emits: frozenset[str] = frozenset()
    """Kinds of chunks that go to the client."""
    feeds: frozenset[str] = frozenset()
    """Kinds of chunks that go to the next stage that takes them. A kind may be in both ``emits`` and ``feeds``."""
    answers: bool = False
    """Whether it can begin from the request alone, without input, as a thinker does when the user types."""
    says: bool = False
    """Whether it turns ``Request.say`` into what the next stages speak. In a pipeline without such a stage, the text
    goes to the first stage that takes text."""
    unfit: str = ""
    """Why it cannot serve any request here, as a sentence; empty if it can."""
    slots: int = 16
    """Slots of a replica. A request takes one, or one for each of its roles if the stage has a ``group``."""
    group: Literal["", "guided", "joined"] = ""
    """How it computes a request's roles. "guided": they step together and give one answer. "joined": each runs to its
    own end, and the next stage gets one Bundle of all their chunks. Empty: it computes the main role only."""
    batch: int | None = None
    """Maximum requests per step; None: the worker's limit."""
    max_pending: int = 8
    """Items that may lie on ``StageRequest.pending`` before the adapter waits."""
    checkpoints: frozenset[str] = frozenset()
    """Kinds of chunks that the server stores in case the replica is lost, in addition to the stage's last Checkpoint:
    see ``StageRequest.kept``."""
    replay: Literal["exact", "continue", "never"] = "exact"
    """What the stage gives when it begins again on another replica.

    - "exact": the same as before; what was delivered is left out.
    - "continue": its stored chunks, unchanged, and then a new continuation. What it feeds follows from both. If it also
      emitted other kinds (an unfinished tool call), the answer ends with its replica.
    - "never": something else, so an answer that has begun ends with its replica.
    """
    prepares: bool = False
    """Whether it can warm up the known part of a prompt while the user still speaks: ``Streamed.prepare``."""
    blocking: bool = False
    """Whether its step is one long native call (some 50 ms or more), such as the synthesis of a sentence.

    Such a stage steps in its own thread, one step at a time, while the worker's loop, heartbeats and other stages go
    on; the call should release the GIL. ``step`` has its batch to itself, but ``open`` and ``adapt`` of other requests
    run concurrently, so state that they share with ``step`` must be thread-safe. A step may take 10 s, or the stage's
    ``deadline_s``. A longer one counts as hung: the worker is killed and restarted. A request that is closed during the
    call is stepped to its end. Without ``workers:`` in the configuration, a blocking stage gets its own worker.
    """
    facets: Facets = Facets()
    """Its contribution to the pipeline's ModelInfo."""

    def slots_of(self, request: Request) -> int:
        """Return how many slots a request takes."""
        return len(request.roles) if self.group else 1

    def mark(self, word: str, role: str = "main") -> str:
        """Return the name on the timeline of an event of a role at this stage."""
        return f"{self.name}.{word}" if role == "main" else f"{self.name}[{role}].{word}"

    @property
    def sounds(self) -> bool:
        """Whether it makes the answer's audio, or its codec frames."""
        return "audio" in self.emits or "codes" in self.feeds

    @property
    def hears_only(self) -> bool:
        """Whether it takes part only in requests with speech: it is the ears."""
        return self.takes == frozenset({"speech"}) and not self.answers


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What clients learn about a pipeline."""

    name: str
    voices: tuple[Voice, ...] = ()
    """The first one is the default."""
    languages: tuple[str, ...] = ()
    """Languages that it speaks, as BCP 47; empty if unknown."""
    heard_languages: tuple[str, ...] = ()
    """Languages that it understands, as BCP 47."""
    reduces_noise: bool = False
    """Whether its ears reduce noise themselves."""
    abilities: frozenset[Ability] = frozenset()
    """What it takes (text, audio, pictures, video) and gives (tools, speech)."""
    frame_s: float = 0.08
    """Length of one codec frame in seconds."""
    camera: CameraFeed = CameraFeed()
    hears_for: str = ""
    """The model whose requests are all that its ears understand; empty where they understand any words."""
    hears_only_for: str = ""
    """The model whose requests are all that its ears understand, although another one answers; else empty."""
    context: int = 4096
    """The longest prompt and answer together, in tokens."""
    cost: TokenCost = TokenCost()
    tokenizer: str = ""
    """The vocabulary of its text's token ids, for the messages in which they come back."""
    examples: tuple[str, ...] = ()
    """Sentences that the model understands, for people who try it for the first time."""
    notes: tuple[str, ...] = ()
    """Sentences that people should read before they talk to it: who receives a conversation that leaves this machine,
    and what cannot be said."""
    ledger: tuple[str, ...] = ()
    """The terms of its first-audio ledger, in order."""

    @property
    def understands_speech(self) -> bool:
        """Whether it can be talked to: it hears, and its ears are not limited to the requests of another model."""
        return "audio" in self.abilities and not self.hears_only_for

    @property
    def voice_ids(self) -> tuple[str, ...]:
        return tuple(voice.id for voice in self.voices)


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of a stage's prefix cache since its worker started."""

    asked: int
    """Positions of the prompts that were looked up."""
    reused: int
    """Positions of those prompts that did not have to be computed."""
    hits: int
    """Lookups that found something."""
    evicted: int
    """Entries that were evicted."""
    held_bytes: int


Pcm = NDArray[np.int16]
Wave = NDArray[np.float32]


def seconds(pcm: NDArray[Any], rate_hz: int) -> float:
    """Duration of mono samples."""
    return len(pcm) / rate_hz
