"""The ends of a session that others fill: the engine, the voice activity detector, the judge of pauses, the transport.

A room of the session knows them by these types alone. Knows no wire format and no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from app.realtime.timer_lateness import TimerLatenessEstimator
from engine import Chunks, ModelInfo, Request
from engine.core import Pcm, Wave

Eagerness = Literal["low", "medium", "high"]


class EnginePort(Protocol):
    """The engine, as far as a session sees it."""

    @property
    def model(self) -> ModelInfo: ...

    def open(self, request: Request, inputs: Any = None) -> AbstractAsyncContextManager[Chunks]: ...


class Vad(Protocol):
    """A voice activity detector: it judges a microphone's chunks in order, and remembers those before."""

    def probability(self, chunk: Wave) -> float:
        """Return how likely the chunk (float32 [CHUNK] in [-1, 1]) holds speech, 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class EndpointingContext:
    """A pause of the user. ``words`` are what was understood so far, "" if nothing is known.

    ``heard`` says that the ASR has given all words up to this pause.

    ``listening`` says that ears are about to emit all of them: until then, they and the voice may show that the user
    will go on, and not that they have finished.

    ``whole`` says whether ears that know what can be asked take these words for all of a request; None: they can't say.
    ``falling`` says how the voice came to its end: 1 sank as at a sentence's end, -1 was held as by a speaker who goes
    on; 0 is neither, or not known.

    ``sound`` is the probability that the turn is over by the end-of-turn model that listened to it; None if not known.
    ``sound_due`` says that the model is still at work on it.
    """

    words: str = ""
    falling: float = 0.0
    whole: bool | None = None
    listening: bool = False
    heard: bool = False
    sound: float | None = None
    sound_due: bool = False


class EndOfTurnModel(Protocol):
    """A model that judges whether the user's turn is over.

    ``listen`` is called once per pause in a thread, and its result comes back as ``EndpointingContext.sound``. The
    other methods return at once and keep no state: they are called with every 32 ms of audio.
    """

    @property
    def window_s(self) -> float:
        """Seconds of sound before a pause that ``listen`` takes. 0: it does not listen."""
        ...

    def listen(self, pcm: Pcm) -> float:
        """Return the probability that a turn is over that ends with int16 [samples] at MIC_RATE_HZ."""
        ...

    def probability(self, moment: EndpointingContext) -> float:
        """Return the probability that the turn is over, 0 to 1, from all that is known."""
        ...

    def silence_ms(self, moment: EndpointingContext, eagerness: Eagerness) -> int:
        """The silence after which the turn is over, unless the user goes on or more is understood meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class PlayoutProfile:
    """The way in which a transport takes an answer's sound: how far ahead of the listener, and at which end it is
    played.

    ``plays``: the server itself plays answers out, in real time, and hears the microphone as a stream. Then it knows
    what was heard, announces when playback begins and ends, and truncates what was interrupted; otherwise the client
    does these.
    """

    lead_s: float = 1.5
    """Seconds that sending runs ahead of the listener: over a socket this rides out a hiccup, and can still be
    recalled."""
    packet_s: float = 0.1
    """The most audio in one packet: what goes out after a barge-in was decided is at most this."""
    plays: bool = False
    lag_s: Callable[[], float] = lambda: 0.0
    """A function that returns how long after a sample has left its listener hears it, at this moment."""
    set_delay: Callable[[float], None] = lambda delay_s: None
    """A setter of how long, by the client's word in seconds, sound that reaches it waits there before it is heard."""
    new_resume_token: Callable[[], str] | None = None
    """A maker of tokens with which the client may come back to its session; None where it can't."""
    streams_input: bool = False
    """Whether the microphone is a stream of the transport's own, and does not come as messages."""
    overlap_ms: int = 0
    """Speech over an answer pauses it once it has lasted so long, and then ends it or was a listener's word
    (``overlap``); shorter speech is none. 0: any speech is a turn at once."""
    lateness: TimerLatenessEstimator | None = None
    """How late this server came lately to send: sending then runs farther ahead. None: it never does."""
    reserve_s: float = 0.0
    """Seconds of sound with which a listener without a buffer begins: the first sound waits for them, as long as they
    last at most."""


SOCKET = PlayoutProfile()
"""A connection on which the client plays what it gets."""

CALL = PlayoutProfile(lead_s=0.060, packet_s=0.020, plays=True, streams_input=True)
"""A call, over WebRTC or of a telephone. At most 80 ms leave ahead of the listener, since a barge-in can't recall them;
more while the server is late."""
