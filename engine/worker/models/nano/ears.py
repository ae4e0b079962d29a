"""The ears of nano: pocketsphinx over the automaton of all requests that nano can answer.

They listen while the user speaks. The search is cheap but the cepstral mean, which it subtracts, is only known once
some speech has been heard: so the search starts over from the first sample whenever much more has been heard than the
mean was taken from; in noise at the first pause, too. Silence is left out of it (``utterance``), and the noise beneath
the voice is turned down (``hush``). Beside the requests lies a loop of plain phones; what fits that loop better is no
request, and is not understood. They know no answer and nothing of what was said before.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.chunk import Chunk, Speech, Transcript, kinds
from engine.core import MIC_RATE_HZ, Facets, Pcm, StageInfo
from engine.errors import EngineError, WeightsError
from engine.worker.asr.speech_gate import loudness
from engine.worker.asr.transcribing import ROW, pcm_of
from engine.worker.models.nano.deaf import hears, why
from engine.worker.models.nano.hush import Hush, Voices, Wiener, noise_of, through
from engine.worker.models.nano.utterance import MEAN_REACH, NanoUtterance
from engine.worker.models.nano.voice import session
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

WEIGHTS = Path(__file__).parents[3] / "weights" / "nano"
PIECE = MIC_RATE_HZ // 5  # samples a step searches at most: 10 to 20 ms of work
SPEAKERS = 8  # at once: each one's decoders take 60 MB while they speak
CEPSTRUM = MIC_RATE_HZ // 100  # samples between two cepstra: the unit of the decoder's positions
MEAN_PRIOR = 500  # frames that the mean set before counts for (CMN_WIN in its cmn_live.c)
REQUEST_BEAM = 1e-60  # wide: a right word that starts badly must survive
PHONE_BEAM = 1e-25
NATS = 1024.0  # pocketsphinx scores are logarithms divided by 2**10 (SENSCR_SHIFT in its hmm.h)
REFUSAL = -210.0  # nats; set on the development recordings, see EARS.md
DOUBT = -280.0  # between these two a request is only guessed at, and asked back
CLEAR_DB, PER_DB, MOST = 30.0, 14.0, 40.0  # less clear speech fits worse: by so many nats a dB both limits are lowered
LAST = 10  # cepstra of a last word at least, 0.1 s: people draw it out, and a shorter one was made of the one before
COVERAGE, STEADY_DB = 0.6, 3.0  # speech is covered wholly by its words, noise to a quarter; and it is louder and softer


@dataclass(slots=True)
class Hearing:
    """One request's hearing: what its ears have heard, and how much of it was searched."""

    utterance: NanoUtterance = field(default_factory=NanoUtterance)
    searched: int = 0
    shown: str = ""

    @property
    def allowance(self) -> float:
        """Return by how many nats less the speech need fit, for the noise that is in it."""
        return min(MOST, PER_DB * max(0.0, CLEAR_DB - self.utterance.clear_db))


@dataclass(slots=True)
class Search:
    """Two decoders side by side over the same speech, less its noise: the requests, and any sequence of phones."""

    requests: Any
    phones: Any
    hush: Hush
    user_audio: list[Pcm] = field(default_factory=list[Pcm])

    def start(self, mean: str, hush: Hush) -> None:
        self.hush = hush
        self.user_audio = []
        for decoder in (self.requests, self.phones):
            _start(decoder, mean)

    def feed(self, piece: Pcm) -> None:
        self._hear(self.hush.feed(piece))

    def finish(self) -> None:
        """Nothing follows: let the last samples be heard."""
        self._hear(self.hush.end())

    def _hear(self, piece: Pcm) -> None:
        if len(piece):
            self.user_audio.append(piece)
            for decoder in (self.requests, self.phones):
                decoder.process_raw(piece.tobytes())

    def end(self) -> None:
        for decoder in (self.requests, self.phones):
            decoder.end_utt()

    def words(self) -> str:
        """The best request so far, as plain words."""
        best = self.requests.hyp()
        words = [re.sub(r"\(\d+\)$", "", word) for word in best.hypstr.split()] if best else []
        return " ".join(word for word in words if word[0] not in "<[")

    def last(self) -> int:
        """The length of the last word, in cepstra, after ``end``; there must be one."""
        start, end = self._spans()[-1]
        return end - start

    def coverage(self) -> float:
        """Return how much of what is loud lies within the words, 0 to 1, after ``end``. Noise is loud beside them
        too."""
        pcm = np.concatenate([np.empty(0, np.int16), *self.user_audio])
        levels = loudness(pcm, CEPSTRUM)
        loud = levels > levels.max(initial=0) / 4
        within = np.zeros(len(loud), bool)
        for start, end in self._spans():
            within[start:end] = True
        return float((loud & within).sum() / max(1, loud.sum()))

    def _spans(self) -> list[tuple[int, int]]:
        """Where each word begins and has ended, in cepstra."""
        segments = self.requests.seg() or ()
        return [(one.start_frame, one.end_frame + 1) for one in segments if one.word[0] not in "<[("]

    def margin(self) -> float:
        """Return by how much the request explains the speech better than plain phones do, in nats, after ``end``."""
        request, phones = self.requests.hyp(), self.phones.hyp()
        if request is None or phones is None:
            return -math.inf if request is None else math.inf
        return NATS * (math.log(request.score) - math.log(phones.score))


class Ears:
    """The stage: rows are int16 pieces at MIC_RATE_HZ; out come the words so far, at the end all words or none."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Transcript),
            feeds=kinds(Transcript),
            slots=min(config.slots, SPEAKERS),
            unfit="" if hears() else why(),
            facets=Facets(heard_languages=("en",), hears_for="nano", reduces_noise=True),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        if self.info.unfit:
            log.warning(self.info.unfit)
            return
        self._folder = (config.weights or WEIGHTS) / "ears"
        self._scout = self._decoder("phones", 0.1)  # takes means; it shall not search
        self._net = session(config, "ears/hush")
        self._first_mean: str = self._scout.get_cmn()
        self._free = [self._search(), self._search()]  # 65 MB each; two users speaking at once is ordinary
        self._held: dict[int, Search] = {}

    def warm_up(self) -> None:
        if not self.info.unfit:
            warm_up(self, 1, np.zeros(ROW, np.int16), steps=4)

    def open(self, req: StageRequest) -> None:
        self._release(req.slot)
        req.state = Hearing()

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs, ROW)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """One search starts over at most: where eight users begin at once, a step would last for over a second, with
        decoders to be loaded for most of them, and a worker that says nothing for so long is given up."""
        failed = {req.slot: error for req in reqs if (error := guarded(self, req, _hear))}
        stale = [req for req in reqs if req.slot not in failed and req.state.utterance.stale]
        for req in stale[:1]:
            if error := guarded(self, req, self._start_over, req.state):
                failed[req.slot] = error
        for req in stale[1:]:
            req.needs_input = False  # its turn comes with a next step
        return [failed[req.slot] if req.slot in failed else guarded(self, req, self._listen) for req in reqs]

    def _listen(self, req: StageRequest) -> list[Chunk]:
        hearing: Hearing = req.state
        if hearing.utterance.stale:
            return []
        utterance = hearing.utterance
        if utterance.basis and hearing.searched < len(utterance):
            piece = utterance.pcm(hearing.searched, hearing.searched + PIECE)
            self._held[req.slot].feed(piece)
            hearing.searched += len(piece)
        req.needs_input = not utterance.basis or hearing.searched == len(utterance)
        if not req.needs_input:
            return []
        return self._final(req) if req.ended else self._partial(req)

    def _partial(self, req: StageRequest) -> list[Chunk]:
        text = self._held[req.slot].words() if req.state.utterance.basis else ""
        if not text or text == req.state.shown:
            return []
        req.state.shown = text
        return [Transcript(text)]

    def _final(self, req: StageRequest) -> list[Chunk]:
        text = ""
        confident = False
        complete = None
        req.done = True
        if search := self._held.get(req.slot):
            so_far = search.words()
            search.finish()
            self._release(req.slot)
            margin = self._margin(search, req.state) + req.state.allowance
            text, confident = search.words() if margin > DOUBT else "", margin > REFUSAL
            if so_far:  # else the search was made to end in a request that was not said
                complete = text == so_far and search.last() >= LAST
        return [Transcript(text, final=True, understood=bool(text), confident=confident, complete=complete)]

    def _margin(self, search: Search, hearing: Hearing) -> float:
        """Return how surely the speech is a request, rather than made into one, in nats."""
        voice = hearing.utterance.clear_db > STEADY_DB and not hearing.utterance.too_long
        return search.margin() if voice and search.coverage() > COVERAGE else -math.inf

    def _start_over(self, req: StageRequest, hearing: Hearing) -> None:
        """Search again from the first sample, with the cepstral mean of what has been heard."""
        self._release(req.slot)
        search = self._held[req.slot] = self._free.pop() if self._free else self._search()
        hearing.searched = 0
        utterance = hearing.utterance
        utterance.stale = False
        pcm = utterance.pcm()
        noise = noise_of(pcm)
        voices = through(Voices(self._net, noise), pcm)
        left = noise_of(voices)
        known = through(Wiener(left), voices[: min(utterance.basis, MEAN_REACH)])
        search.start(_mean(self._scout, known, self._first_mean), Hush(self._net, noise, left))

    def _release(self, slot: int) -> None:
        if search := self._held.pop(slot, None):
            with suppress(RuntimeError):  # it broke before it had begun: no other request gets it
                search.end()
                self._free.append(search)

    def _search(self) -> Search:
        unknown = noise_of(np.empty(0, np.int16))
        return Search(
            self._decoder("requests", REQUEST_BEAM),
            self._decoder("phones", PHONE_BEAM),
            Hush(self._net, unknown, unknown),
        )

    def _decoder(self, language: str, beam: float) -> Any:
        import pocketsphinx  # not every Python and processor has it

        model, files = Path(pocketsphinx.get_model_path()) / "en-us" / "en-us", self._folder / language
        try:
            return pocketsphinx.Decoder(
                hmm=str(model),
                dict=f"{files}.dict",
                fsg=f"{files}.fsg",
                lm=None,
                loglevel="FATAL",
                bestpath=False,
                beam=beam,
                pbeam=beam,
                wbeam=beam**0.75,
            )
        except RuntimeError as error:
            raise WeightsError(f"{files}.dict or {files}.fsg is missing or damaged") from error


def _hear(req: StageRequest) -> None:
    """Take the rows that came."""
    utterance: NanoUtterance = req.state.utterance
    while req.pending:
        utterance.push(req.pending.popleft())
    if req.ended:
        utterance.end()


def _start(decoder: Any, mean: str) -> None:
    """Begin an utterance. Else the noise that its front end takes away would be that of who was heard before."""
    decoder.reinit_feat()
    decoder.set_cmn(mean)
    decoder.start_utt()


def _mean(decoder: Any, pcm: Pcm, before: str) -> str:
    """The cepstral mean of ``pcm``: what the decoder's running mean makes of it, without the mean it began with."""
    _start(decoder, before)
    decoder.process_raw(pcm.tobytes(), no_search=True)
    prior, mixed = (np.array([float(x) for x in text.split(",") if x]) for text in (before, decoder.get_cmn(True)))
    decoder.end_utt()
    frames = max(1, (len(pcm) - 410) // 160 + 1)
    return ",".join(f"{x:.6g}" for x in mixed + (mixed - prior) * MEAN_PRIOR / frames)
