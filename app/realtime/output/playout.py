"""The playout of one answer: samples produced, sent and heard, and when the next packet is due.

Audio is sent ``lead_s`` ahead of the listener: far enough that playback does not run dry, near enough that a barge-in
can discard the rest. Sans-I/O: the clock is an argument, and a sender polls ``take`` when a packet is due. One object
per answer.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from app.realtime.output.leading_silence import LeadingSilence
from app.realtime.ports import SOCKET
from app.realtime.timer_lateness import TimerLatenessEstimator
from engine import SPEAKER_RATE_HZ
from engine.core import Wave

RESERVE_S = 0.06
"""Seconds of audio that are enough to start playback without waiting: the following chunks take 20 ms."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The next float32 [samples] for the listener, at SPEAKER_RATE_HZ."""

    samples: Wave

    @property
    def seconds(self) -> float:
        return len(self.samples) / SPEAKER_RATE_HZ


@dataclass(slots=True)
class Playout:
    """Samples between the engine and a listener whose player starts at the first packet without a buffer."""

    lead_s: float = SOCKET.lead_s
    packet_s: float = SOCKET.packet_s
    kept_s: float = 0.0
    """Minimum seconds of sent audio that can be sent again."""
    lateness: TimerLatenessEstimator | None = None
    """Lateness of the server's timers, which extends ``lead_s``."""
    reserve_s: float = 0.0
    """Seconds of audio that the first packet waits for, but no longer than they last: the listener starts with them."""
    whole: bool = False
    """Whether all packets except the last have exactly ``packet_s``.

    A shorter rest waits for more audio, for the end, or until one packet before the listener has played everything.
    """
    leading_silence: LeadingSilence = field(default_factory=LeadingSilence)
    produced_samples: int = 0
    """Samples from the engine, including removed leading silence."""
    sent_samples: int = 0
    underruns: int = 0
    underrun_s: float = 0.0
    _waiting: deque[Packet] = field(default_factory=deque[Packet])
    _sent: deque[Packet] = field(default_factory=deque[Packet])
    _kept_samples: int = 0  # samples in _sent
    _ended: bool = False
    _made_s: float | None = None  # when the first samples arrived
    _dry_at_s: float | None = None  # when the listener has played everything sent; None before the first packet
    _behind_s: float = -math.inf  # when the listener has played what another answer had sent
    _wanted_s: float | None = None  # when the sender should come for a waiting packet
    _paused_s: float | None = None  # since when the listener has paused playback

    @property
    def ends_s(self) -> float:
        """Return the time at which the listener will have heard all audio sent so far, including earlier answers.

        It is on the clock of ``take``, and -inf if nothing was sent.
        """
        return self._behind_s if self._dry_at_s is None else self._dry_at_s

    def follow(self, before: Playout) -> None:
        """Start after the audio that an ended answer has sent."""
        self._behind_s = max(self._behind_s, before.ends_s)

    def push(self, samples: Wave) -> None:
        """Add float32 [samples] from the engine."""
        self.produced_samples += len(samples)
        samples, size = self.leading_silence.feed(samples), round(self.packet_s * SPEAKER_RATE_HZ)
        if self.whole and self._waiting and len(self._waiting[-1].samples) < size:
            samples = np.concatenate([self._waiting.pop().samples, samples])
        self._waiting.extend(Packet(samples[at : at + size]) for at in range(0, len(samples), size))

    def end(self) -> None:
        """Mark the end of the audio."""
        self._ended = True

    @property
    def skipped_samples(self) -> int:
        """Return how many samples at the start are not played."""
        return self.leading_silence.skipped_samples

    @property
    def drained(self) -> bool:
        """Whether the whole answer has been sent."""
        return self._ended and not self._waiting

    def take(self, now_s: float) -> Packet | None:
        """Return the next packet if it is due."""
        if self._made_s is None and self.produced_samples:
            self._made_s = now_s
        if (due_in_s := self.due_in_s(now_s)) != 0:
            self._wanted_s = None if due_in_s is None else now_s + due_in_s
            return None
        self._note_lateness(now_s)
        packet = self._waiting.popleft()
        self._send(packet, now_s)
        return packet

    def due_in_s(self, now_s: float) -> float | None:
        """Return the seconds until the next packet is due; None without a packet."""
        if not self._waiting:
            return None
        if self._dry_at_s is not None and self._begun:
            return max(0.0, self._dry_at_s - now_s - self.packet_s)
        more_s = 0.0 if self.lateness is None else self.lateness.ahead_s(now_s)
        if self._dry_at_s is not None:
            return max(0.0, self._dry_at_s - now_s - self.lead_s - more_s)
        return max(self._begins_in_s(now_s), self._behind_s - now_s - self.lead_s - more_s)

    @property
    def _begun(self) -> bool:
        """Whether the waiting audio is less than a packet, and more may come."""
        return self.whole and not self._ended and self._waiting[0].seconds < self.packet_s - 1e-9

    def flush(self) -> None:
        """Discard unsent audio after an interruption."""
        self._waiting.clear()
        self._ended = True

    def pause(self, now_s: float) -> None:
        """Note that the listener pauses playback and keeps the audio not yet played."""
        self._paused_s = now_s

    def resume(self, now_s: float) -> None:
        """Continue after a deliberate pause. A listener that ran dry meanwhile receives the next packets at once."""
        self._wanted_s = None
        if self._paused_s is not None and self._dry_at_s is not None and self._dry_at_s > self._paused_s:
            self._dry_at_s += now_s - self._paused_s
        self._paused_s = None
        if self._dry_at_s is not None and self._dry_at_s < now_s:
            self._dry_at_s = None

    def rewind(self, since_s: float, lag_s: float = 0.0) -> int:
        """Send again, at once, what the listener would have heard after ``since_s``. Returns the number of samples."""
        self._wanted_s = None  # nobody was connected to receive it
        unplayed, samples = self.unplayed_s(since_s, lag_s) * SPEAKER_RATE_HZ, 0
        while self._sent and samples < unplayed:
            packet = self._sent.pop()
            self._waiting.appendleft(packet)
            samples += len(packet.samples)
        self.sent_samples -= samples
        self._kept_samples -= samples
        if samples:
            self._dry_at_s = None
        return samples

    def played_samples(self, now_s: float, lag_s: float = 0.0) -> int:
        """Return how many sent samples the listener has played, hearing them ``lag_s`` after sending."""
        return max(0, self.sent_samples - round(self.unplayed_s(now_s, lag_s) * SPEAKER_RATE_HZ))

    def unplayed_s(self, now_s: float, lag_s: float = 0.0) -> float:
        """Return the seconds until the listener has played everything sent."""
        at_s = now_s if self._paused_s is None else self._paused_s
        return 0.0 if self._dry_at_s is None else max(0.0, self._dry_at_s + lag_s - at_s)

    def _begins_in_s(self, now_s: float) -> float:
        """Return the seconds until the first packet is due.

        Removed silence need not be heard, but a player without a buffer uses its time as a reserve. The wait ends early
        once there is enough audio, and never lasts longer than the silence itself.
        """
        if self._ended or self._made_s is None:
            return 0.0
        waiting_s = sum(packet.seconds for packet in self._waiting)
        silent_s = self.skipped_samples / SPEAKER_RATE_HZ if waiting_s < RESERVE_S else 0.0
        wait_s = max(silent_s, self.reserve_s if waiting_s < self.reserve_s else 0.0, self.packet_s * self._begun)
        return max(0.0, self._made_s + wait_s - now_s)

    def _note_lateness(self, now_s: float) -> None:
        if self.lateness is not None and self._wanted_s is not None:
            self.lateness.came(now_s - self._wanted_s, now_s)
        self._wanted_s = None

    def _send(self, packet: Packet, now_s: float) -> None:
        if self._dry_at_s is not None and self._dry_at_s < now_s:
            self.underruns += 1
            self.underrun_s += now_s - self._dry_at_s
        self._dry_at_s = max(now_s, self.ends_s) + packet.seconds
        self.sent_samples += len(packet.samples)
        self._keep(packet)

    def _keep(self, packet: Packet) -> None:
        self._sent.append(packet)
        self._kept_samples += len(packet.samples)
        while self._sent and self._kept_samples - len(self._sent[0].samples) >= self.kept_s * SPEAKER_RATE_HZ:
            self._kept_samples -= len(self._sent.popleft().samples)
