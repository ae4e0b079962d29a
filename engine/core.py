"""The nouns that everything else meets in: messages, requests, and what a stage declares of itself.

Knows no process, no model, no socket; imports nothing of ours.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

MIC_RATE_HZ = 16_000
"""Speech enters the engine as mono int16 at this rate: what ears and audio encoders of every family eat."""

SPEAKER_RATE_HZ = 24_000
"""Speech leaves the engine as mono float32 in [-1, 1] at this rate."""

Want = Literal["transcript", "text", "audio"]
"""The parts of an answer that a client may want: the user's words, the answer's text, its sound."""

ANSWER: frozenset[Want] = frozenset({"transcript", "text", "audio"})
IN_WRITING: frozenset[Want] = frozenset({"transcript", "text"})

Ability = Literal["text", "audio", "image", "video", "tools", "speech"]


class TextPart(msgspec.Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    text: str


class AudioPart(msgspec.Struct, frozen=True, tag="audio", forbid_unknown_fields=True):
    """Speech of a finished turn: int16 [samples] at MIC_RATE_HZ, with its transcript once a stage has heard it."""

    pcm: Any
    transcript: str | None = None


class ImagePart(msgspec.Struct, frozen=True, tag="image", forbid_unknown_fields=True):
    """A picture: uint8 [height, width, 3], already within the size caps."""

    pixels: Any


class VideoPart(msgspec.Struct, frozen=True, tag="video", forbid_unknown_fields=True):
    """A video: uint8 [frames, height, width, 3], so many frames a second, and its sound (int16 at MIC_RATE_HZ).

    ``times_s`` is when each frame was taken, in seconds from the first sample, where they came as a camera sent them:
    one in each ``1 / fps`` at most, and sometimes none.
    """

    frames: Any
    fps: float
    pcm: Any = None
    times_s: tuple[float, ...] = ()


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
    """An answer's raw ids, and the tokenizer that they are of (``ModelInfo.tokenizer``): to others they say nothing."""

    tokenizer: str
    ids: tuple[int, ...]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of the conversation. ``token_ids`` are an answer's raw ids: the prompts of a model with the same
    tokenizer take them, not re-tokenized text."""

    role: Role
    parts: tuple[Part, ...]
    token_ids: TokenIds | None = None

    def ids_of(self, tokenizer: str) -> tuple[int, ...]:
        """The raw ids, if they are of that tokenizer; none otherwise: the text is to be encoded anew."""
        return self.token_ids.ids if self.token_ids is not None and self.token_ids.tokenizer == tokenizer else ()


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that the client offers; ``parameters`` is its JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way in which the next token is drawn. ``greedy`` wins over the rest; None leaves the family's default."""

    greedy: bool = False
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    guidance: float = 1.0
    """The distance that a guided stage goes from the companion's result towards, and past, the main role's; 1 stops at
    the main role's. Other values need a request with the role that the family names (nano's talker: "negative")."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer that the engine is asked for.

    ``messages`` is the conversation up to and including the user's turn. With ``live`` the user's turn (or the rest
    of it) arrives as Speech on the inputs of ``engine.open``, until they end; with ``camera``, the frames that the
    user shows meanwhile arrive beside it. Only the stages that bring what is ``wants`` take part. With ``say`` that
    text is spoken as it stands: nothing is generated.
    """

    id: str
    session: str
    messages: tuple[Message, ...]
    owner: str = ""
    """Whose it is: where requests wait for a slot, owners take turns, and who has fewest slots is next."""
    live: bool = False
    camera: bool = False
    wants: frozenset[Want] = ANSWER
    say: str | None = None
    voice: str | None = None
    speed: float = 1.0
    sampling: Sampling = Sampling()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of the one tool to call. A family that can't obey it refuses."""
    max_text_tokens: int = 512
    max_audio_s: float = 160.0
    """The longest answer, in seconds of sound."""
    lead_s: float | None = None
    """Seconds by which the answer's sound may be made ahead of its listener; None: as fast as it is read."""
    dump: bool = False
    """Whether codec frames and prompt ids are handed out as well."""
    preemptible: bool = False
    """Whether it takes free slots only, and is ended as Preempted once another request waits for one.

    From ``Chunks.claim`` on, it keeps the slots that it has.
    """
    roles: tuple[str, ...] = ("main",)
    """Stages that are declared ``group`` compute each of these, and give one answer: "main", then its companions."""

    @property
    def offers(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        if self.tool_choice in ("auto", "required"):
            return self.tools
        return tuple(tool for tool in self.tools if self.tool_choice == tool.name != "none")

    @property
    def must_call(self) -> bool:
        """Whether only a call of one of these is an answer."""
        return self.tool_choice not in ("auto", "none")

    @property
    def hears(self) -> bool:
        """Whether speech comes in: live, or as audio of the last message."""
        return self.live or bool(self.recorded)

    @property
    def recorded(self) -> list[Pcm]:
        """The speech of the last message that nobody has transcribed yet."""
        last = self.messages[-1].parts if self.messages else ()
        return [part.pcm for part in last if isinstance(part, AudioPart) and part.transcript is None]

    @property
    def speaks(self) -> bool:
        return "audio" in self.wants


class TokenCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Estimates of the prompt tokens that things take, rather too many than too few: conversations are cut by them."""

    character: float = 0.4
    instruction: float = 0.4
    """A character of system messages and of tools' schemas."""
    audio_s: float = 14.0
    image: float = 1500.0
    frame: float = 110.0
    """A frame of a video."""
    message: float = 6.0
    """Tokens that stand around each message."""


class Voice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A voice that a request may name: by ``id``, which people read as ``name``."""

    id: str
    name: str
    """The speaker as a person would say it: "Slt, a woman"."""
    language: str = ""
    """BCP 47, as "en-US"; "" where the voice speaks every language that the model does."""


PICTURES = 3
"""Frames of a turn that a model gets which sees pictures and no video, the newest: two tell that something moves, a
third one where to."""


class CameraFeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a user's camera that a model takes while they speak: so many frames a second at most, none with a
    longer side than ``side`` pixels, and ``most`` of them in a turn."""

    fps: float = 1.0
    side: int = 640
    most: int = PICTURES


class Facets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts that a stage adds to the picture of its pipeline, where it is the one to know; ``engine.pipeline`` merges
    them."""

    model: str = ""
    """The name of a thinker's model: the pipeline's name, where the configuration gives none."""
    voices: tuple[Voice, ...] = ()
    languages: tuple[str, ...] = ()
    """Languages that a voice speaks, as BCP 47."""
    heard_languages: tuple[str, ...] = ()
    """Languages that ears, or a thinker that hears, understand."""
    sees: frozenset[Ability] = frozenset()
    """"image", "video", or both."""
    camera: CameraFeed | None = None
    """Set by a stage that looks along while the user speaks. It gets VideoFrames, where it takes those; else it is
    asked to ``prepare`` with each, and has the newest as pictures in its request, where it begins behind the ears."""
    frame_s: float | None = None
    """Length of one codec frame in seconds, of a stage that turns frames into sound."""
    own_chunks: bool = False
    """Whether it cuts its sound by a rule of its own, so that the configuration's ``chunks`` have no effect."""
    context: int | None = None
    cost: TokenCost | None = None
    tokenizer: str = ""
    """The vocabulary of the token ids in a thinker's text. Where vocabularies differ, so do these names."""
    examples: tuple[str, ...] = ()
    leaving: str = ""
    """One sentence that says who gets what of a conversation that leaves this machine; empty where nothing does."""
    hears_for: str = ""
    """The thinker's model whose requests are all that these ears understand; empty for other ears."""
    reduces_noise: bool = False
    """Whether these ears take noise away by themselves: what was cleaned before them they understand less well."""


class StageInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that a stage tells the engine about itself.

    ``takes`` are the kinds of chunks that it reads, alternatives to each other; ``emits`` are those that go to the
    client, ``feeds`` those that go on to the stage that takes them; a kind may be in both, and ``engine.chunk.kinds``
    makes the sets. ``answers`` says that it begins from the request alone where nothing comes in: a thinker, to which
    the user has typed. ``says`` is for a stage that turns ``Request.say`` into what the next ones speak; without one,
    the text goes to the first stage that takes text. ``unfit`` is why it serves nobody here, as a sentence.

    ``slots`` is how many requests a replica has: a request takes one, or one for each of its roles where the stage is a
    ``group``: "guided" roles step together and the stage makes one answer of them, "joined" ones go each to its end,
    and the next stage gets one Bundle of all they gave. A step takes ``batch`` of them at most; None: as many as
    the worker allows. ``max_pending`` items may lie unread before the adapter waits.
    The server stores all chunks of the kinds ``checkpoints`` for the case that the replica is lost, and the stage's
    last Checkpoint: see ``StageRequest.kept``.
    ``replay`` says what comes where the stage has to begin anew on another replica. "exact": the same, so that what was
    given is left out. "continue": what it had checkpointed, as that stands, and then something that goes on behind it;
    what it feeds follows from that, and an answer of which it emitted other kinds, too (a tool call under way), ends
    with its replica. "never": something else, so that an answer of which anything was given ends.

    ``blocking`` is for a stage whose step is one long native call, like a sentence of sound or a whole recording: a
    step of some 50 ms and more. It is stepped in a thread of its own, one step at a time, while the worker's loop, its
    heartbeats and its other stages go on; so that call should release Python's lock. ``step`` has the requests of
    its batch to itself, but ``open`` and ``adapt`` of others run meanwhile: what they share with ``step`` must stand
    that. A step may take 10 s, or as long as the stage's ``deadline_s`` says, where it has one; one that takes longer
    counts as hung, and the worker is killed and started again. A request that is closed meanwhile is stepped to the
    end of the call. Without ``workers:`` in the configuration a blocking stage has a worker of its own.

    ``name`` and ``order``, its place in the line, are the pipeline's to give.
    """

    name: str = ""
    order: int = 0
    takes: frozenset[str] = frozenset()
    emits: frozenset[str] = frozenset()
    feeds: frozenset[str] = frozenset()
    answers: bool = False
    says: bool = False
    unfit: str = ""
    slots: int = 16
    group: Literal["", "guided", "joined"] = ""
    batch: int | None = None
    max_pending: int = 8
    checkpoints: frozenset[str] = frozenset()
    replay: Literal["exact", "continue", "never"] = "exact"
    prepares: bool = False
    """Whether it can warm up what is known of a prompt while the user still speaks: ``Streamed.prepare``."""
    blocking: bool = False
    facets: Facets = Facets()

    def slots_of(self, request: Request) -> int:
        """Return how many slots a request takes."""
        return len(request.roles) if self.group else 1

    def mark(self, word: str, role: str = "main") -> str:
        """Return the name that a moment of a role at this stage has on the timeline."""
        return f"{self.name}.{word}" if role == "main" else f"{self.name}[{role}].{word}"

    @property
    def sounds(self) -> bool:
        """Whether it makes the answer's sound, or its codec frames."""
        return "audio" in self.emits or "codes" in self.feeds

    @property
    def hears_only(self) -> bool:
        """Whether it is there for those who speak, and for nobody else."""
        return self.takes == frozenset({"speech"}) and not self.answers


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that a pipeline tells the world about itself."""

    name: str
    voices: tuple[Voice, ...] = ()
    """The first one speaks where a request names none."""
    languages: tuple[str, ...] = ()
    """Languages that it speaks, as BCP 47; empty where it does not tell."""
    heard_languages: tuple[str, ...] = ()
    """Languages that it understands, as BCP 47."""
    reduces_noise: bool = False
    """Whether its ears take noise away by themselves."""
    abilities: frozenset[Ability] = frozenset()
    frame_s: float = 0.08
    """Length of one codec frame in seconds."""
    camera: CameraFeed = CameraFeed()
    context: int = 4096
    """The longest prompt and answer in tokens."""
    cost: TokenCost = TokenCost()
    tokenizer: str = ""
    """The vocabulary of its text's token ids, for the messages in which they go back."""
    examples: tuple[str, ...] = ()
    """Sentences that the model understands: for people who see it for the first time."""
    notes: tuple[str, ...] = ()
    """One sentence for each thing that people should know before they talk to it: who gets what of a conversation that
    leaves this machine, and what cannot be said."""
    ledger: tuple[str, ...] = ()
    """The terms of its first-audio ledger, in their order."""

    @property
    def voice_ids(self) -> tuple[str, ...]:
        return tuple(voice.id for voice in self.voices)


class ProcessorTime(msgspec.Struct, frozen=True):
    """The time that a worker's first thread has had in all its life: on a processor, and ready to run without one."""

    computed_s: float
    waited_s: float
    on_disk: bool = False
    """Whether it waits for a disk, or for a page of its memory that lies on one, at this moment."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompts that a stage has kept of its sessions, and how much that saved. Counts since its worker began."""

    asked: int
    """Positions of the prompts that were looked up."""
    reused: int
    """Positions of those prompts that did not have to be computed."""
    hits: int
    """Look-ups that found something."""
    evicted: int
    """Entries that were forgotten for want of room."""
    held_bytes: int


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica of one stage, as the server sees it at a moment."""

    stage: str
    replica: str
    """The name of its worker, which its successors inherit."""
    incarnation: int
    """The number of workers that have had that name."""
    state: Literal["up", "draining"]
    leased: int
    """Requests that it has, of at most ``slots``."""
    slots: int
    queue: int
    """The number of requests that had to wait for a step at the last heartbeat."""
    step_ms: float
    age_s: float
    """Seconds since it joined."""
    remembered: Remembered | None = None
    """The prefixes that the stage keeps, at the last heartbeat; None for a stage that keeps none."""
    unavailable: str = ""
    """One sentence that says why requests that need the stage fail for now: the server that it asks is down."""


Pcm = NDArray[np.int16]
Wave = NDArray[np.float32]


def seconds(pcm: NDArray[Any], rate_hz: int) -> float:
    """Duration of mono samples."""
    return len(pcm) / rate_hz
