"""The types that all other modules share: messages, requests, and the description of a stage.

This module imports no other module of Parley.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

MIC_RATE_HZ = 16_000
"""The sample rate of all speech that enters the engine: mono int16. Every speech recogniser and audio encoder uses
it.
"""

SPEAKER_RATE_HZ = 24_000
"""The sample rate of all speech that leaves the engine: mono float32 in [-1, 1]."""

Want = Literal["transcript", "text", "audio"]
"""A part of an answer that a client may want: the transcript of the user's speech, the answer's text, or its audio."""

ANSWER: frozenset[Want] = frozenset({"transcript", "text", "audio"})
"""All parts of an answer."""
IN_WRITING: frozenset[Want] = frozenset({"transcript", "text"})
"""The parts of an answer without audio."""

Ability = Literal["text", "audio", "image", "video", "tools", "json", "speech"]
"""An input that a model accepts ("text", "audio", "image", "video"), or an output it gives ("tools", "json", "speech").
"""


class TextPart(msgspec.Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    text: str


class AudioPart(msgspec.Struct, frozen=True, tag="audio", forbid_unknown_fields=True):
    """Speech of a finished turn."""

    pcm: Any
    """int16 [samples] at MIC_RATE_HZ."""
    transcript: str | None = None
    """Its transcript; None before a stage has made one."""


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
    """Its audio: int16 [samples] at MIC_RATE_HZ; None for a silent video."""
    times_s: tuple[float, ...] = ()
    """The time of each frame in seconds from the first sample; empty for evenly spaced frames.

    Only frames of a live camera have times: at most one frame in each ``1 / fps``, sometimes none.
    """


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
    """The name of the ids' tokenizer (``ModelInfo.tokenizer``). For another tokenizer, the ids are meaningless."""
    ids: tuple[int, ...]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: Role
    parts: tuple[Part, ...]
    token_ids: TokenIds | None = None
    """The raw ids of an answer. Prompts for the same tokenizer reuse them, so the text is not encoded again."""

    def ids_of(self, tokenizer: str) -> tuple[int, ...]:
        """Return the raw ids if they belong to that tokenizer; otherwise (), and the text must be encoded again."""
        return self.token_ids.ids if self.token_ids is not None and self.token_ids.tokenizer == tokenizer else ()


class ToolDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that the client offers."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of its arguments."""


class JsonFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON that an answer must be."""

    schema: dict[str, Any] | None = None
    """Its JSON schema; None: any object."""
    name: str = ""
    description: str = ""
    strict: bool | None = None
    """What the client has set, for remote servers. Models on this machine always follow the schema."""


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the next token is drawn. For None, the model family's default applies."""

    greedy: bool = False
    """Whether to take the most probable token. Overrides the other fields."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    guidance: float = 1.0
    """Guidance scale: 0 follows the companion role, 1 the main role, and values above 1 go beyond the main role.

    Values other than 1 need a request with the companion that the family names (nano's talker: "negative").
    """


Hint = Literal["language", "prompt", "keywords"]


class SpeechHints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client knows about the speech. A recogniser uses the kinds in its ``Facets.hints``, and no others."""

    languages: tuple[str, ...] = ()
    """Languages that the user may speak, as BCP 47; the most likely one first. Empty: unknown."""
    prompt: str = ""
    """Text in the style of the transcript."""
    keywords: tuple[str, ...] = ()
    """Words or phrases that are likely to occur, such as names."""


NO_HINTS = SpeechHints()


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for one answer."""

    id: str
    session: str
    """The conversation that it belongs to. The requests of a session share cached prefixes."""
    messages: tuple[Message, ...]
    """The conversation up to and including the user's turn; without a live turn's speech."""
    owner: str = ""
    """The client or user that it belongs to. When requests wait for slots, the owner with the fewest slots is next."""
    live: bool = False
    """Whether the user's turn, or the rest of it, arrives as Speech on the ``inputs`` of ``Engine.open``."""
    camera: bool = False
    """Whether frames of the user's camera arrive together with that speech."""
    hints: SpeechHints = NO_HINTS
    """Hints for the speech recogniser."""
    wants: frozenset[Want] = ANSWER
    """The parts of the answer to make. Stages that contribute to none of them are skipped."""
    say: str | None = None
    """A text to speak verbatim; nothing is generated."""
    voice: str | None = None
    """The id of a Voice; None: the model's first voice."""
    speed: float = 1.0
    """The speaking rate, relative to the voice's own."""
    sampling: Sampling = Sampling()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of the tool to call. A model family that cannot obey rejects the
    request.
    """
    format: JsonFormat | None = None
    """The JSON that the answer must be; None: any text. Needs a model with the ability "json"."""
    max_text_tokens: int = 512
    """Maximum length of the answer, in tokens of text."""
    max_audio_s: float = 160.0
    """Maximum length of the answer, in seconds of audio."""
    lead_s: float | None = None
    """Maximum seconds by which the answer's audio is made ahead of its playback; None: no limit."""
    dump: bool = False
    """Whether the answer also contains codec frames and prompt ids."""
    preemptible: bool = False
    """Whether the request takes only free slots, and ends with Preempted as soon as another request waits for one of
    them.

    After ``Chunks.claim`` it keeps its slots.
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
        """The recordings in the last message that are not transcribed yet; each is int16 [samples] at MIC_RATE_HZ."""
        last = self.messages[-1].parts if self.messages else ()
        return [part.pcm for part in last if isinstance(part, AudioPart) and part.transcript is None]

    @property
    def speaks(self) -> bool:
        return "audio" in self.wants


class TokenCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Estimates of prompt tokens, used to truncate conversations. They are too high rather than too low."""

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

    def of(self, message: Message) -> float:
        """Estimate how many tokens of a prompt a message takes."""
        tokens = self.message
        for part in message.parts:
            match part:
                case TextPart(text):
                    tokens += len(text) * (self.instruction if message.role == "system" else self.character)
                case AudioPart(pcm) if pcm is not None:
                    tokens += len(pcm) / MIC_RATE_HZ * self.audio_s
                case ImagePart():
                    tokens += self.image
                case ToolCallPart(name, arguments):
                    tokens += len(name + arguments) * self.character
                case ToolResultPart(_, output):
                    tokens += len(output) * self.character
                case _:
                    pass
        return tokens


class Voice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A voice that a request may name."""

    id: str
    name: str
    """A description for people, such as "Sally, a woman"."""
    language: str = ""
    """BCP 47, like "en-US"; empty if the voice speaks every language of the model."""


PICTURES = 3
"""The number of newest frames of a turn for a model that takes images but no video. Two frames show a movement, three
also its direction.
"""


class CameraFeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The video that a model takes from the user's camera while the user speaks."""

    fps: float = 1.0
    """Maximum frames per second."""
    side: int = 640
    """Maximum length of a frame's longer side, in pixels."""
    most: int = PICTURES
    """Maximum frames per turn."""


class Duplex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The frames of a stage that listens while it speaks: each step takes one of the user's and gives one."""

    frame_s: float = 0.08
    """Length of a frame in seconds."""
    rate_hz: int = SPEAKER_RATE_HZ
    """The sample rate of the user's Speech, for this stage instead of MIC_RATE_HZ."""

    @property
    def frame_samples(self) -> int:
        """The number of samples of a frame of the user's speech."""
        return round(self.frame_s * self.rate_hz)


class Facets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts that a stage contributes to the description of its pipeline. ``engine.pipeline`` merges them."""

    model: str = ""
    """The name of a thinker's model: the pipeline's name if the configuration gives none."""
    voices: tuple[Voice, ...] = ()
    """Its voices; the first one is the default."""
    languages: tuple[str, ...] = ()
    """Languages that a voice speaks, as BCP 47."""
    heard_languages: tuple[str, ...] = ()
    """Languages that a speech recogniser, or a thinker that hears, understands, as BCP 47."""
    sees: frozenset[Ability] = frozenset()
    """"image", "video", or both."""
    camera: CameraFeed | None = None
    """Set by a stage that uses the camera while the user speaks; None otherwise.

    If the stage takes VideoFrames, it receives the frames as input. Otherwise its ``prepare`` is called with each
    frame, and if the stage comes after the speech recogniser, its request contains the newest frames as images.
    """
    duplex: Duplex | None = None
    """Set by a stage that listens while it speaks; None otherwise. Such a stage is the only one of its pipeline."""
    frame_s: float | None = None
    """Length of one codec frame in seconds, for a stage that turns frames into audio."""
    own_chunks: bool = False
    """Whether it cuts its audio by its own rule, so the configuration's ``chunks`` have no effect."""
    context: int | None = None
    """Maximum length of prompt and answer together, in tokens."""
    cost: TokenCost | None = None
    tokenizer: str = ""
    """The vocabulary of the token ids in a thinker's text. Different vocabularies must have different names."""
    examples: tuple[str, ...] = ()
    """Sentences that the model understands, for people who try it for the first time."""
    leaving: str = ""
    """A sentence that names each remote server and the parts of a conversation that it receives; empty if there is
    none.
    """
    hears_for: str = ""
    """Set by a speech recogniser that only understands the requests of one thinker's model: the name of that model."""
    reduces_noise: bool = False
    """Whether this speech recogniser reduces noise itself. It recognises denoised audio less well."""
    hints: frozenset[Hint] = frozenset()
    """The kinds of ``Request.hints`` that this speech recogniser uses."""
    summarizes: bool = False
    """Whether this thinker can follow the instruction to summarize its conversation, as general language models can."""
    writes_json: bool = False
    """Whether this thinker obeys ``Request.format``."""


class StageInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a stage, given by the stage itself. ``engine.chunk.kinds`` makes its sets of chunk kinds."""

    name: str = ""
    """Its name in the pipeline, set by the pipeline."""
    order: int = 0
    """Its index in the pipeline, set by the pipeline."""
    takes: frozenset[str] = frozenset()
    """Kinds of chunks that the stage reads. They are alternatives: any one kind is enough."""
    emits: frozenset[str] = frozenset()
    """Kinds of chunks that go to the client."""
    feeds: frozenset[str] = frozenset()
    """Kinds of chunks that go to the next stage that takes them. A kind may also be in ``emits``."""
    answers: bool = False
    """Whether it can start from the request alone, without input, as a thinker does for a typed message."""
    says: bool = False
    """Whether it converts ``Request.say`` to the input of the next stage. Without such a stage, the text goes to the
    first stage that takes text.
    """
    unfit: str = ""
    """A sentence that says why the stage cannot serve any request on this machine; empty if it can."""
    slots: int = 16
    """Slots of each replica. A request takes one slot; if the stage has a ``group``, one for each of its roles."""
    group: Literal["", "guided", "joined"] = ""
    """How it computes the roles of a request.

    - "guided": they step together and give one answer.
    - "joined": each role runs to its own end, and the next stage gets all their chunks as one Bundle.
    - "": it computes only the main role.
    """
    batch: int | None = None
    """Maximum requests per step; None: the worker's limit."""
    max_pending: int = 8
    """Maximum items on ``StageRequest.pending``; the adapter waits while there are more."""
    checkpoints: frozenset[str] = frozenset()
    """Kinds of chunks that the server stores for recovery, in addition to the stage's last Checkpoint.

    A replacement replica finds them in ``StageRequest.kept``.
    """
    replay: Literal["exact", "continue", "never"] = "exact"
    """What the stage produces when it starts again on another replica after a loss.

    - "exact": the same output. The part that was delivered before is left out.
    - "continue": the stored chunks unchanged, then a new continuation. What it feeds follows from both. If it has also
      emitted other kinds (an unfinished tool call), the answer fails.
    - "never": different output. An answer that has begun fails.
    """
    prepares: bool = False
    """Whether it can warm up the known part of a prompt while the user still speaks: ``Streamed.prepare``."""
    blocking: bool = False
    """Whether its step is one long native call (50 ms or more), such as the synthesis of a sentence.

    Such a stage steps in its own thread, one step at a time, so that heartbeats and the worker's other stages go on.
    The call should release the GIL. ``open`` and ``adapt`` of other requests run concurrently, so state that they share
    with ``step`` must be thread-safe; only the batch belongs to ``step`` alone. A step may take 10 s, or the stage's
    ``deadline_s``. After that it counts as hung, and the worker is killed and restarted. A request that is closed
    during the call is stepped to its end. If the configuration has no ``workers:``, each blocking stage gets its own
    worker.
    """
    facets: Facets = Facets()
    """Its contribution to the pipeline's ModelInfo."""

    def slots_of(self, request: Request) -> int:
        """Return how many slots a request takes."""
        return len(request.roles) if self.group else 1

    def mark(self, word: str, role: str = "main") -> str:
        """Return the name of a timeline event of this stage, for a role of the request."""
        return f"{self.name}.{word}" if role == "main" else f"{self.name}[{role}].{word}"

    @property
    def sounds(self) -> bool:
        """Whether it makes the answer's audio, or its codec frames."""
        return "audio" in self.emits or "codes" in self.feeds

    @property
    def hears_only(self) -> bool:
        """Whether it only takes part in requests with speech: it is a speech recogniser."""
        return self.takes == frozenset({"speech"}) and not self.answers and self.facets.duplex is None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a pipeline that clients receive."""

    name: str
    voices: tuple[Voice, ...] = ()
    """The first one is the default."""
    languages: tuple[str, ...] = ()
    """Languages that it speaks, as BCP 47; empty if unknown."""
    heard_languages: tuple[str, ...] = ()
    """Languages that it understands, as BCP 47."""
    reads_transcripts: bool = False
    """Whether a speech recogniser transcribes the user's speech for the model that answers."""
    reduces_noise: bool = False
    """Whether its speech recogniser reduces noise itself."""
    hints: frozenset[Hint] = frozenset()
    """The kinds of ``Request.hints`` that its speech recogniser uses."""
    summarizes: bool = False
    """Whether its thinker can summarize a conversation."""
    abilities: frozenset[Ability] = frozenset()
    """Its inputs (text, audio, pictures, video) and outputs (tools, speech)."""
    duplex: Duplex | None = None
    """Set for a model that listens while it speaks. Its requests last a whole conversation; see ``Engine.open``."""
    frame_s: float = 0.08
    """Length of one codec frame in seconds."""
    camera: CameraFeed = CameraFeed()
    hears_for: str = ""
    """The model whose requests the speech recogniser is limited to; empty if it recognises any words."""
    hears_only_for: str = ""
    """The name of the model whose requests are all that its speech recogniser understands, if another model answers;
    otherwise empty.
    """
    context: int = 4096
    """Maximum length of prompt and answer together, in tokens."""
    cost: TokenCost = TokenCost()
    tokenizer: str = ""
    """The name of the tokenizer that its text's token ids belong to; see ``Message.token_ids``."""
    examples: tuple[str, ...] = ()
    """Sentences that the model understands, for people who try it for the first time."""
    notes: tuple[str, ...] = ()
    """Sentences to read before talking to it: which server receives the conversation, and what the model cannot do."""
    ledger: tuple[str, ...] = ()
    """The names of the parts of its time to first audio, in order; see ``Ledger``."""

    @property
    def understands_speech(self) -> bool:
        """Whether users can talk to it: it takes audio, and its speech recogniser is not limited to another model's
        requests.
        """
        return "audio" in self.abilities and not self.hears_only_for

    @property
    def voice_ids(self) -> tuple[str, ...]:
        return tuple(voice.id for voice in self.voices)


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counters of a stage's prefix cache since its worker started."""

    asked: int
    """Prompt positions that were looked up."""
    reused: int
    """Prompt positions that did not have to be computed."""
    hits: int
    """Lookups that found an entry."""
    evicted: int
    """Entries that were evicted."""
    held_bytes: int


class DuplexCounts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Counters of the frames of a duplex stage since its worker started, over all sessions."""

    frames: int = 0
    """Frames that were stepped."""
    concealed: int = 0
    """Part of ``frames``: the user's sound was missing, so silence took its place."""
    dropped: int = 0
    """Frames of the user's sound that came too late and were dropped."""
    late: int = 0
    """Part of ``frames``: the output was not ready when the next frame was due."""
    skipped: int = 0
    """Frames that were not stepped, because the device was still busy when the next frame was due."""
    unread: int = 0
    """Part of ``frames``: the output was dropped, because the reader did not read."""


Pcm = NDArray[np.int16]
Wave = NDArray[np.float32]


def seconds(pcm: NDArray[Any], rate_hz: int) -> float:
    """Return the duration of mono samples in seconds."""
    return len(pcm) / rate_hz
