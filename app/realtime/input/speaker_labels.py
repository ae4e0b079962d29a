"""Labels for the voices of a session: ``speaker_1``, ``speaker_2`` and so on, in the order in which they are heard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from app.realtime.inference_thread import InferenceThread
from app.realtime.input.speaker_encoder import unit
from app.realtime.ports import Embedding, SpeakerEncoder
from engine.core import MIC_RATE_HZ, Pcm

SAME = 0.35
"""Likeness from which two turns are the same voice's."""

NEW = MIC_RATE_HZ
"""Samples of speech that a new voice must have. Less may be a known voice that is not recognized."""

SHORTEST = MIC_RATE_HZ // 2
"""Samples of speech below which a turn gets no label."""

LONGEST = 4 * MIC_RATE_HZ
"""Samples of a turn that are judged, at most."""

MOST = 8
"""Voices of one session. Further ones get no label."""


class SpeakerLabels:
    """The voices of one session. Embeddings are computed in a thread, and polled."""

    def __init__(self, thread: InferenceThread) -> None:
        self._thread = thread
        self._voices: list[Embedding] = []
        self._asked: deque[tuple[str, int, Future[Embedding]]] = deque(maxlen=MOST)

    def ask(self, encoder: SpeakerEncoder, item_id: str, speech: Pcm) -> None:
        """Find out who spoke int16 [samples], the turn ``item_id``."""
        heard = speech[-LONGEST:]
        if len(heard) >= SHORTEST:
            self._asked.append((item_id, len(heard), self._thread.run(encoder.embed, heard)))

    def found(self) -> Iterator[tuple[str, str]]:
        """Yield the items whose voice is known by now, each with its label. An unclear voice has none."""
        while self._asked and self._asked[0][2].done():
            item_id, samples, asked = self._asked.popleft()
            if asked.cancelled() or asked.exception() is not None:
                continue
            number = self._number(asked.result(), samples)
            if number is not None:
                yield item_id, f"speaker_{number + 1}"

    def _number(self, voice: Embedding, samples: int) -> int | None:
        likeness = [float(voice @ one) for one in self._voices]
        best = max(range(len(likeness)), key=likeness.__getitem__, default=None)
        if best is not None and likeness[best] >= SAME:
            if samples >= NEW:
                self._voices[best] = unit(0.8 * self._voices[best] + 0.2 * voice)
            return best
        if samples < NEW or len(self._voices) == MOST:
            return None
        self._voices.append(voice)
        return len(self._voices) - 1
