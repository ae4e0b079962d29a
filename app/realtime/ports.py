"""Interfaces of a session: the engine, the voice activity detector, the end-of-turn model and the transport.

Parts of the session know these only by their types.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from app.realtime.timer_lateness import TimerLatenessEstimator
from engine import Chunks, ModelInfo, Request
from engine.core import Pcm, Wave

Eagerness = Literal["low", "medium", "high"]

Embedding = NDArray[np.float32]
"""The vector of a voice: float32 [width], of length 1. The dot product of two tells how alike the voices are."""


class AnswerSource(Protocol):
    """A source of answers: the engine, or fixed lines."""

    @property
    def model(self) -> ModelInfo: ...

    def open(self, request: Request, inputs: Any = None) -> AbstractAsyncContextManager[Chunks]: ...


class EnginePort(AnswerSource, Protocol):
    """The engine as a session sees it."""

    def prepare(self, request: Request) -> None: ...


class Vad(Protocol):
    """A voice activity detector. It receives a microphone's chunks in order and keeps state between them."""

    def probability(self, chunk: Wave) -> float:
        """Return the probability of speech in a chunk (float32 [CHUNK] in [-1, 1]), from 0 to 1."""
        ...


class EchoCanceller(Protocol):
    """An acoustic echo canceller. It receives a microphone's signal in order and keeps state between the pieces."""

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        """Return the microphone's signal without echo.

        Args:
            near: Signal of the microphone, int16 [n] at MIC_RATE_HZ, n of any size.
            far: Playback at the same time, int16 [n]. Its echo may come up to 400 ms later.

        Returns:
            int16 [n], at most 20 ms later than ``near``.
        """
        ...


class SpeakerEncoder(Protocol):
    """Tells voices apart."""

    def embed(self, pcm: Pcm) -> Embedding:
        """Return the embedding of the voice in int16 [samples] at MIC_RATE_HZ. Called in a thread."""
        ...


@dataclass(frozen=True, slots=True)
class EndpointingContext:
    """A pause of the user."""

    words: str = ""
    """The words recognised so far; "" if nothing is known."""
    falling: float = 0.0
    """How the pitch ended: 1 fell as at a sentence's end, -1 was held as by a speaker who continues, 0 is unknown."""
    whole: bool | None = None
    """Whether the ASR model takes the words for a complete request; None if it can't tell."""
    listening: bool = False
    """Whether the ASR model is about to report all words. Until then, words and pitch may only show that the user will
    continue, not that the turn is over."""
    heard: bool = False
    """Whether the ASR model has reported all words up to this pause."""
    sound: float | None = None
    """The probability that the turn is over, by the end-of-turn model that listened to it; None if not known."""
    sound_due: bool = False
    """Whether that model is still computing ``sound``."""
    languages: tuple[str, ...] = ("en",)
    """The languages that the user may speak, as BCP 47: the session's hints, or else all that the ASR model knows."""


class EndOfTurnModel(Protocol):
    """Decides when a turn is over.

    ``listen`` is called once per pause in a thread, for at most two sessions at once. Its result comes back as
    ``EndpointingContext.sound``. The other methods return at once and keep no state: they are called with every 32 ms
    of audio.
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
        """Return the silence in ms after which the turn is over, unless the user continues or more words arrive."""
        ...


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """When a session pauses because nothing happens, and which speech ends the pause."""

    timeout_s: float
    """Seconds without speech of either side."""
    wake_threshold: float = 0.5
    """Minimum speech probability, 0 to 1."""


@dataclass(frozen=True, slots=True)
class PlayoutProfile:
    """How a transport plays audio: how far ahead of the listener it sends, and which side plays."""

    lead_s: float = 1.5
    """Seconds of audio sent ahead of the listener. Over a WebSocket this covers network stalls, and can still be
    discarded.
    """
    packet_s: float = 0.1
    """Maximum audio in one packet: at most this much is sent after a barge-in was detected."""
    plays: bool = False
    """Whether the server plays answers in real time and receives the microphone as a stream.

    It then knows what was heard, reports start and end of playback, and truncates interrupted answers. Otherwise the
    client does.
    """
    lag_s: Callable[[], float] = lambda: 0.0
    """Return the current delay in seconds between sending a sample and the listener hearing it."""
    unsent_s: Callable[[], float] = lambda: 0.0
    """Return the seconds of audio that wait for a client that reads slowly."""
    ahead_s: Callable[[], float] = lambda: 0.0
    """Return the seconds of audio that the listener has still to play, as far as the transport knows."""
    set_delay: Callable[[float], None] = lambda delay_s: None
    """Set the delay in seconds, as reported by the client, between arrival and playback of audio."""
    new_resume_token: Callable[[], str] | None = None
    """Create a token with which the client can resume its session; None if it can't."""
    streams_input: bool = False
    """Whether the microphone is a media stream of the transport instead of messages."""
    lateness: TimerLatenessEstimator | None = None
    """Estimates how late this server's timers are: audio is then sent farther ahead. None disables this."""
    reserve_s: float = 0.0
    """Seconds of audio with which a listener without a buffer starts: playback waits for them, but no longer than they
    last.
    """


SOCKET = PlayoutProfile()
"""A connection on which the client plays the audio."""

CALL = PlayoutProfile(lead_s=0.060, packet_s=0.020, plays=True, streams_input=True)
"""A WebRTC or telephone call.

At most 80 ms are sent ahead of the listener, since a barge-in can't discard them; more while the server's timers are
late.
"""
