"""nano's speech recognition: pocketsphinx with a grammar of all requests that nano can answer.

It decodes while the user speaks. The search is cheap, but it subtracts the cepstral mean, which is known only after
some speech. So the search restarts from the first sample when much more speech has arrived than the mean was computed
from, and in noise also at the first pause. Silence is removed (``utterance``) and noise is reduced (``hush``) first. A
second decoder matches the speech with any sequence of phones; if that fits better, the speech is not a known request
and is rejected.
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
from engine.worker.models.nano.hush import Hush, Voices, Wiener, noise_of, through
from engine.worker.models.nano.options import check_options
from engine.worker.models.nano.speech_input import is_supported, why_unsupported
from engine.worker.models.nano.utterance import MEAN_REACH, NanoUtterance
from engine.worker.models.nano.voice import session
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

WEIGHTS = Path(__file__).parents[3] / "weights" / "nano"
BLOCK = MIC_RATE_HZ // 50  # samples that the decoders take at a time
PIECE = MIC_RATE_HZ // 5  # maximum samples per step, 10 to 20 ms of computing
SPEAKERS = 8  # maximum concurrent speakers; decoders take 60 MB each
CEPSTRUM = MIC_RATE_HZ // 100  # samples per cepstrum, the unit of the decoder's positions
MEAN_PRIOR = 500  # weight, in frames, of the initial mean (CMN_WIN in pocketsphinx's cmn_live.c)
REQUEST_BEAM = 1e-60  # wide, so that a correct word with a poor start survives
PHONE_BEAM = 1e-25
NATS = 1024.0  # pocketsphinx scores are logarithms divided by 2**10 (SENSCR_SHIFT in its hmm.h)
REFUSAL = -210.0  # nats; tuned on the development recordings, see EARS.md
DOUBT = -280.0  # between DOUBT and REFUSAL, nano asks the user to confirm
CLEAR_DB, PER_DB, MOST = 30.0, 14.0, 40.0  # noisy speech fits worse: lowers both limits by PER_DB nats per dB
LAST = 10  # minimum cepstra (0.1 s) of a real last word; people lengthen it
COVERAGE, STEADY_DB = 0.6, 3.0  # minimum share of loud audio inside words; minimum SNR


@dataclass(slots=True)
class Hearing:
    """Recognition state of one request."""

    utterance: NanoUtterance = field(default_factory=NanoUtterance)
    searched: int = 0
    shown: str = ""

    @property
    def allowance(self) -> float:
        """Nats by which the limits are lowered because of noise."""
        return min(MOST, PER_DB * max(0.0, CLEAR_DB - self.utterance.clear_db))


@dataclass(slots=True)
class Search:
    """Two decoders over the same noise-reduced speech: one for requests, one for any sequence of phones."""

    requests: Any
    phones: Any
    hush: Hush
    user_audio: list[Pcm] = field(default_factory=list[Pcm])
    rest: Pcm = field(default_factory=lambda: np.empty(0, np.int16))
    """Incomplete block: the decoders update the cepstral mean at each call, so all blocks have one length."""

    def start(self, mean: str, hush: Hush) -> None:
        self.hush = hush
        self.user_audio = []
        self.rest = self.rest[:0]
        for decoder in (self.requests, self.phones):
            _start(decoder, mean)

    def feed(self, piece: Pcm) -> None:
        self._hear(self.hush.feed(piece))

    def finish(self) -> None:
        """Feed the remaining samples, because no more audio follows."""
        self._hear(self.hush.end())
        self._decode(self.rest)

    def _hear(self, piece: Pcm) -> None:
        self.user_audio.append(piece)
        fresh = np.concatenate([self.rest, piece])
        whole = len(fresh) // BLOCK * BLOCK
        for at in range(0, whole, BLOCK):
            self._decode(fresh[at : at + BLOCK])
        self.rest = fresh[whole:]

    def _decode(self, block: Pcm) -> None:
        if len(block):
            for decoder in (self.requests, self.phones):
                decoder.process_raw(block.tobytes())

    def end(self) -> None:
        for decoder in (self.requests, self.phones):
            decoder.end_utt()

    def words(self) -> str:
        """Return the best request so far, as plain words."""
        best = self.requests.hyp()
        words = [re.sub(r"\(\d+\)$", "", word) for word in best.hypstr.split()] if best else []
        return " ".join(word for word in words if word[0] not in "<[")

    def last(self) -> int:
        """Return the length of the last word in cepstra. Call after ``end``; there must be a word."""
        start, end = self._spans()[-1]
        return end - start

    def coverage(self) -> float:
        """Return the share (0 to 1) of the loud audio that lies within words; it is low for noise. Call after
        ``end``.
        """
        pcm = np.concatenate([np.empty(0, np.int16), *self.user_audio])
        levels = loudness(pcm, CEPSTRUM)
        loud = levels > levels.max(initial=0) / 4
        within = np.zeros(len(loud), bool)
        for start, end in self._spans():
            within[start:end] = True
        return float((loud & within).sum() / max(1, loud.sum()))

    def _spans(self) -> list[tuple[int, int]]:
        """Return the start and end of each word in cepstra."""
        segments = self.requests.seg() or ()
        return [(one.start_frame, one.end_frame + 1) for one in segments if one.word[0] not in "<[("]

    def margin(self) -> float:
        """Return the log-likelihood advantage of the request over plain phones, in nats. Call after ``end``."""
        request, phones = self.requests.hyp(), self.phones.hyp()
        if request is None or phones is None:
            return -math.inf if request is None else math.inf
        return NATS * (math.log(request.score) - math.log(phones.score))


class Ears:
    """Speech recognition stage: takes int16 at MIC_RATE_HZ, emits partial transcripts and a final one."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        check_options(config)
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Transcript),
            feeds=kinds(Transcript),
            slots=min(config.slots, SPEAKERS),
            unfit="" if is_supported() else why_unsupported(),
            facets=Facets(heard_languages=("en",), hears_for="nano", reduces_noise=True),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        if self.info.unfit:
            log.warning(self.info.unfit)
            return
        self._folder = (config.weights or WEIGHTS) / "ears"
        self._scout = self._decoder("phones", 0.1)  # only computes cepstral means
        self._net = session(config, "ears/hush")
        self._first_mean: str = self._scout.get_cmn()
        self._free = [self._search(), self._search()]  # 65 MB each, for two concurrent speakers
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
        """Decode one piece for each request, and restart at most one search.

        Restarting the searches of eight concurrent users, with decoders to load, would take over a second, and the
        watchdog would restart the worker.
        """
        failed = {req.slot: error for req in reqs if (error := guarded(self, req, _hear))}
        stale = [req for req in reqs if req.slot not in failed and req.state.utterance.stale]
        for req in stale[:1]:
            if error := guarded(self, req, self._start_over, req.state):
                failed[req.slot] = error
        for req in stale[1:]:
            req.needs_input = False  # restarted in a later step
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
        return [Transcript(text, confident=False)]

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
            if so_far:  # otherwise the end of the search forced a request
                complete = text == so_far and search.last() >= LAST
        return [Transcript(text, final=True, understood=bool(text), confident=confident, complete=complete)]

    def _margin(self, search: Search, hearing: Hearing) -> float:
        """Return the confidence, in nats, that the speech is a request."""
        voice = hearing.utterance.clear_db > STEADY_DB and not hearing.utterance.too_long
        return search.margin() if voice and search.coverage() > COVERAGE else -math.inf

    def _start_over(self, req: StageRequest, hearing: Hearing) -> None:
        """Restart the search from the first sample, with the cepstral mean of the speech known then."""
        self._release(req.slot)
        search = self._held[req.slot] = self._free.pop() if self._free else self._search()
        hearing.searched = 0
        utterance = hearing.utterance
        utterance.stale = False
        pcm = utterance.pcm(0, utterance.known)
        noise = noise_of(pcm)
        voices = through(Voices(self._net, noise), pcm)
        left = noise_of(voices)
        known = through(Wiener(left), voices[: min(utterance.basis, MEAN_REACH)])
        search.start(_mean(self._scout, known, self._first_mean), Hush(self._net, noise, left))

    def _release(self, slot: int) -> None:
        if search := self._held.pop(slot, None):
            with suppress(RuntimeError):  # a decoder that failed before it started is not reused
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
            raise WeightsError(
                f"{files}.dict or {files}.fsg is missing or damaged. Download nano's files again."
            ) from error


def _hear(req: StageRequest) -> None:
    utterance: NanoUtterance = req.state.utterance
    while req.pending:
        utterance.push(req.pending.popleft())
    if req.ended:
        utterance.end()


def _start(decoder: Any, mean: str) -> None:
    """Begin an utterance: reset the noise statistics of the previous speaker, and set the initial cepstral mean."""
    decoder.reinit_feat()
    decoder.set_cmn(mean)
    decoder.start_utt()


def _mean(decoder: Any, pcm: Pcm, before: str) -> str:
    """Return the cepstral mean of ``pcm``, computed from the decoder's running mean without its initial value."""
    _start(decoder, before)
    decoder.process_raw(pcm.tobytes(), no_search=True)
    prior, mixed = (np.array([float(x) for x in text.split(",") if x]) for text in (before, decoder.get_cmn(True)))
    decoder.end_utt()
    frames = max(1, (len(pcm) - 410) // 160 + 1)
    return ",".join(f"{x:.6g}" for x in mixed + (mixed - prior) * MEAN_PRIOR / frames)
