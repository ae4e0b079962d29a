"""The voice of nano: text -> spoken letters -> codec frames -> sound; numpy and ONNX Runtime only.

Talker: an encoder over letters gives each a state and a duration; a step with a window of keys and values then
speaks one 40 ms frame of 8 codes. Code2Wav: a causal net with carried tails turns codes into F0 and filters,
`Source` renders them at 24 kHz. A letter is spoken once the ten after it are known or the text has ended. Trained by
engine/training/nano.

Neither stage knows the thinker, a socket or another request. How the text or the frames are cut never changes the
sound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.core import SPEAKER_RATE_HZ, Chunk, Request, StageInfo
from engine.errors import EngineError, RequestError, WeightsError
from engine.worker.spoken import Said, Speller
from engine.worker.stage import Books, Place, Seat, state_due

VOICES = ("rms", "slt", "awb")
"""By their number in the networks. The first is the one that speaks where none is asked for."""
FRAME_S = 0.04
LETTERS = "^ abcdefghijklmnopqrstuvwxyz',.?"
LETTER_INDEX = {letter: index for index, letter in enumerate(LETTERS)}
REACH = 10
"""Letters that the text encoder looks to either side: those after a letter must be known before it is spoken."""
LAYERS, HEADS, HEAD, RING = 4, 4, 48, 31
"""Of the talker step: layers, heads, their width, and how many frames before the present one it attends to."""
BOOKS, SIZE, LATENT = 8, 512, 64

Floats = NDArray[np.float32]


def session(place: Place, name: str) -> ort.InferenceSession:
    """Open one network of the voice; `place.weights` is a folder, by default the built-in one."""
    folder = place.weights or Path(__file__).parents[3] / "weights" / "nano"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        raise WeightsError(f"{path} is missing: point `weights` to a folder with nano's ONNX files")
    options = ort.SessionOptions()
    options.intra_op_num_threads = place.threads
    options.inter_op_num_threads = 1
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise WeightsError(f"{path} can't be loaded ({error}): fetch the file again") from error


def run(net: ort.InferenceSession, outputs: Sequence[str], inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """`InferenceSession.run`, typed as what it gives for tensors."""
    return cast("list[NDArray[Any]]", net.run(outputs, inputs))


@dataclass(slots=True)
class Speech:
    """What one request has to say: letters, where each came from, and of those encoded their states and end times."""

    letters: list[int] = field(default_factory=lambda: [0])
    sources: list[int] = field(default_factory=lambda: [0])
    states: list[Floats] = field(default_factory=list[Floats])
    ends_s: list[float] = field(default_factory=list[float])
    complete: bool = False
    frames: int = 0
    letter: int = 0  # the one spoken last
    latent: Floats = field(default_factory=lambda: np.zeros(LATENT, np.float32))

    @property
    def middle_s(self) -> float:
        """The middle of the next frame decides which letter it speaks."""
        return (self.frames + 0.5) * FRAME_S

    @property
    def speakable(self) -> bool:
        return bool(self.ends_s) and self.middle_s <= self.ends_s[-1]

    @property
    def text_end(self) -> int:
        """Characters whose sound is over: those of the letters that the next frame has left behind."""
        over = self.letter
        while over < len(self.ends_s) and self.ends_s[over] < self.middle_s:
            over += 1
        return self.sources[over - 1] + 1 if over > 1 else 0  # the first letter is the silence before

    def hear(self, said: Said) -> None:
        self.letters += [LETTER_INDEX[letter] for letter in said.letters]
        self.sources += said.sources

    def undecided(self) -> tuple[int, int]:
        """The range of letters whose surroundings are known and which are not encoded yet."""
        return len(self.ends_s), len(self.letters) if self.complete else max(0, len(self.letters) - REACH)


MAX_GUIDANCE = 10.0
NEGATIVE = "negative"
"""The role of a companion that is not told the text: guidance goes away from what it would say."""


class Talker:
    """Letters -> codec frames, one a step for every request. A guided one has a companion, which hears the same frames
    before and no text; the two make one frame of theirs.
    """

    def __init__(self, place: Place) -> None:
        self.info = StageInfo(
            name="talker", order=2, feeds=frozenset({"codes"}), when="speaks", slots=place.slots,
            group="guided", keeps=frozenset({"codes"}), latest=frozenset({"talker.state"}),
        )  # fmt: skip
        self._text, self._frame = session(place, "talker_text"), session(place, "talker_step")
        self._rings = np.zeros((place.slots, LAYERS, 2, HEADS, RING, HEAD), np.float32)

    def open(self, seat: Seat) -> None:
        """Begin, or go on behind the frames that a lost replica's state covers: the text is told again."""
        _check_guidance(seat.request)
        voice_of(seat.request)
        speech = seat.state = Speech()
        if seat.role == "main" and (left := seat.left("talker.state")) is not None:
            speech.frames, speech.latent, self._rings[_slots(seat)] = left["frames"], left["latent"], left["rings"]

    def _state(self, seat: Seat) -> Chunk:
        """What the next frame depends on beside the text."""
        rings = self._rings[_slots(seat)]
        return Chunk("talker.state", {"frames": seat.state.frames, "latent": seat.state.latent, "rings": rings})

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Text -> letters to say; the last row is what `flush` gives."""
        speller = Speller()
        async for chunk in inputs:
            if (said := speller.feed(chunk.data)).letters:
                yield said
        yield speller.flush()

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        main = [seat for seat in seats if seat.role == "main"]
        for seat in seats:
            if seat.role == "main":
                self._read(seat)
            else:
                seat.rows.clear()
        speaking = [seat for seat in main if seat.state.speakable and seat.state.frames < seat.request.max_frames]
        codes = iter(self._speak(speaking) if speaking else ())
        chunks = [self._given(seat, next(codes)) if seat in speaking else [] for seat in seats]
        for seat in main:
            speech: Speech = seat.state
            seat.hungry = not speech.speakable
            seat.done = speech.frames >= seat.request.max_frames or (seat.hungry and speech.complete)
        return chunks

    def _read(self, seat: Seat) -> None:
        """Take the rows, then encode every letter that has become decidable."""
        speech: Speech = seat.state
        while seat.rows:
            speech.hear(seat.rows.popleft())
        speech.complete = seat.ended and len(speech.letters) > 1
        if seat.ended and len(speech.letters) == 1:
            speech.complete, speech.letters, speech.sources = True, [], []
        begin, end = speech.undecided()
        if end <= begin:
            return
        left = max(0, begin - REACH)
        window = speech.letters[left:] + [0] * (REACH if speech.complete else 0)
        inputs = {"letters": np.array([window], np.int64), "voice": np.array([voice_of(seat.request)])}
        states, duration = run(self._text, ("states", "duration"), inputs)
        part = slice(begin - left, end - left)
        speech.states += list(states[0, part])
        last_s = speech.ends_s[-1] if speech.ends_s else 0.0
        speech.ends_s += (last_s + np.cumsum(_seconds(duration[0, part]) / seat.request.speed)).tolist()

    def _speak(self, seats: Sequence[Seat]) -> NDArray[np.int64]:
        """One frame for each main seat -> codes [seats, 8]; keys and values go to the rings of their slots.

        A row for each of them, and behind these one for each companion: without text, and its main one's partner.
        """
        count, guided = len(seats), [index for index, seat in enumerate(seats) if NEGATIVE in seat.group]
        rows = [*range(count), *guided]
        speeches: list[Speech] = [seat.state for seat in seats]
        slots = np.array([seat.slot for seat in seats] + [seats[index].group[NEGATIVE].slot for index in guided])
        states = np.stack([_advanced(speech) for speech in speeches])[rows]
        places = np.array([_places(speech) for speech in speeches], np.float32)[rows]
        states[count:] = places[count:] = 0
        position = np.array([speech.frames for speech in speeches], np.int64)[rows]
        partner, guidance = np.arange(len(rows)), np.ones(len(rows), np.float32)
        partner[guided] = np.arange(count, len(rows))
        guidance[guided] = [seats[index].request.sampling.guidance for index in guided]
        inputs = {
            "states": states,
            "places": places,
            "previous": np.stack([speech.latent for speech in speeches])[rows],
            "position": position,
            "ring": self._rings[slots],
            "partner": partner,
            "guidance": guidance,
            "voice": np.array([voice_of(seat.request) for seat in seats], np.int64)[rows],
        }
        codes, latents, new = run(self._frame, ("codes", "latent", "new"), inputs)
        self._rings[slots, :, :, :, position % RING] = new
        for speech, latent in zip(speeches, latents[:count], strict=True):
            speech.latent, speech.frames = latent, speech.frames + 1
        return codes[:count]

    def _given(self, seat: Seat, codes: NDArray[np.int64]) -> list[Chunk]:
        frame = Chunk("codes", codes[None].astype(np.int16), {"text_end": seat.state.text_end})
        frames = seat.state.frames
        return [frame, self._state(seat)] if state_due(frames - 1, frames) else [frame]


def _seconds(duration: Floats) -> NDArray[np.float64]:
    """The encoder's log seconds and logit of being spoken [L, 2] -> seconds [L]."""
    return np.where(duration[:, 1] > 0, np.exp(duration[:, 0].astype(np.float64)), 0.0)


def _advanced(speech: Speech) -> Floats:
    """Move to the letter under the middle of the next frame -> its state."""
    while speech.ends_s[speech.letter] < speech.middle_s:
        speech.letter += 1
    return speech.states[speech.letter]


def _places(speech: Speech) -> list[float]:
    """Where in its letter the next frame stands, as six features."""
    middle = speech.middle_s
    begin, end = (speech.ends_s[speech.letter - 1] if speech.letter else 0.0), speech.ends_s[speech.letter]
    length = max(end - begin, 0.005)
    share = min(1.0, max(0.0, (middle - begin) / length))
    since, left = min(3.0, (middle - begin) * 8), min(3.0, (end - middle) * 8)
    return [share, 1 - share, min(length, 0.5) * 4, since, left, abs(share - 0.5)]


def voice_of(request: Request) -> int:
    """The number of the voice that is asked for. Raises RequestError where there is none."""
    if request.voice is None:
        return 0
    if request.voice not in VOICES:
        raise RequestError(f"nano has no voice {request.voice!a:.100}: {', '.join(VOICES)}")
    return VOICES.index(request.voice)


def _slots(seat: Seat) -> list[int]:
    """Of a main seat and its companion."""
    return [seat.slot, *(other.slot for role, other in seat.group.items() if role == NEGATIVE)]


def _check_guidance(request: Request) -> None:
    """Raises RequestError for roles and scales that mean nothing here."""
    roles, guidance = request.roles, request.sampling.guidance
    if set(roles) - {"main", NEGATIVE}:
        raise RequestError(f"nano's talker knows the roles main and {NEGATIVE}, not {', '.join(roles)!a:.100}")
    if guidance != 1 and NEGATIVE not in roles:
        raise RequestError(f"guidance of {guidance:g} needs the role {NEGATIVE} beside main")
    if not 0 <= guidance <= MAX_GUIDANCE:
        raise RequestError(f"guidance is between 0 and {MAX_GUIDANCE:g}, not {guidance:g}")


class Code2Wav:
    """Codec frames -> float32 at 24 kHz."""

    def __init__(self, place: Place) -> None:
        self.info = StageInfo(
            name="code2wav", order=3, emits=frozenset({"audio"}), when="speaks", slots=place.slots,
            latest=frozenset({"code2wav.state"}),
        )  # fmt: skip
        self._net = session(place, "code2wav")
        shapes = {given.name: given.shape for given in self._net.get_inputs()}
        self._slow = np.zeros((place.slots, *shapes["slow"][1:]), np.float32)
        self._fast = np.zeros((place.slots, *shapes["fast"][1:]), np.float32)

    def open(self, seat: Seat) -> None:
        """Begin, or go on behind the frames that a lost replica's state covers."""
        voice_of(seat.request)
        source = seat.state = Source(seat.request.sampling.seed)
        self._slow[seat.slot] = self._fast[seat.slot] = 0
        if (left := seat.left("code2wav.state")) is not None:
            self._slow[seat.slot], self._fast[seat.slot] = left["slow"], left["fast"]
            source.go_on(left["source"])

    def _state(self, seat: Seat) -> Chunk:
        slow, fast = self._slow[seat.slot].copy(), self._fast[seat.slot].copy()
        return Chunk("code2wav.state", {"slow": slow, "fast": fast, "source": seat.state.left()})

    def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return Books(BOOKS, SIZE).windows(seat, inputs, seat.state.frames)

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        fed: dict[int, list[Seat]] = defaultdict(list)
        for seat in seats:
            if seat.rows:
                fed[len(seat.rows[0][0])].append(seat)
            else:
                seat.done = True
        sounds: dict[int, list[Chunk]] = {}
        for alike in fed.values():
            rows = [seat.rows.popleft() for seat in alike]
            for seat, controls, (codes, meta) in zip(alike, self._controls(alike, rows), rows, strict=True):
                sounds[id(seat)] = [Chunk("audio", seat.state.render(controls), meta)]
                if state_due(seat.state.frames - len(codes), seat.state.frames):
                    sounds[id(seat)].append(self._state(seat))
        return [sounds.get(id(seat), []) for seat in seats]

    def _controls(self, seats: Sequence[Seat], rows: Sequence[Any]) -> Floats:
        """Windows of one length -> [seats, 4 x frames, 133]; the conv tails stay with the slots."""
        slots = np.array([seat.slot for seat in seats])
        inputs = {"codes": np.stack([codes for codes, _ in rows]).astype(np.int64)}
        inputs["voice"] = np.array([voice_of(seat.request) for seat in seats], np.int64)
        inputs |= {"slow": self._slow[slots], "fast": self._fast[slots]}
        controls, self._slow[slots], self._fast[slots] = run(self._net, ("controls", "slow_out", "fast_out"), inputs)
        return controls


HOP = SPEAKER_RATE_HZ // 100
FFT = 1024
BANDS = 64
TRAINED_TOP_HZ = 8000.0
"""The net was trained on 16 kHz speech; of the octave above it says how much louder than its last band it is."""
TOPS_HZ = (8500.0, 9500.0, 10500.0, 11500.0)


class Source:
    """Pulses and noise through minimum-phase filters, overlap-added every 10 ms, with everything carried between calls.

    A source-filter synthesizer: harmonics in phase (a Dirichlet kernel) and noise, each hop through a filter whose
    phase follows from its gains by the folded cepstrum. Noise depends on the seed and the sample's index alone.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = np.uint64(seed % 2**32)
        self._samples = 0
        self._phase = 0.0
        self._f0_hz: float | None = None
        self._pulses, self._noise = np.zeros(HOP), np.zeros(HOP)
        self._tail = np.zeros(FFT // HOP * HOP)

    @property
    def frames(self) -> int:
        """Codec frames that have been rendered."""
        return round(self._samples / SPEAKER_RATE_HZ / FRAME_S)

    def left(self) -> dict[str, Any]:
        """All that is carried on to the next call, beside the seed."""
        return {name: value for name, value in vars(self).items() if name != "_seed"}

    def go_on(self, left: dict[str, Any]) -> None:
        """Go on where another source has ``left`` off."""
        vars(self).update(left)

    def render(self, controls: Floats) -> Floats:
        """[T, 133] every 10 ms: log F0, 64 harmonic and 64 noise log gains, 0 to 8 kHz, and how much higher both are at
        `TOPS_HZ` than at 8 kHz -> [T x 240] within -1..1.
        """
        hops = len(controls)
        pulses, self._pulses = _halves(self._pulses, self._pulse_train(controls[:, 0]))
        noise, self._noise = _halves(self._noise, white(self._seed, self._samples, hops * HOP))
        self._samples += hops * HOP
        harmonic, breath, rise = np.split(controls[:, 1:], [BANDS, 2 * BANDS], axis=1)
        spectrum = pulses * response(harmonic, rise) + noise * response(breath, rise)
        sound = self._overlap(np.fft.irfft(spectrum, FFT))
        return np.clip(sound, -1, 1).astype(np.float32)

    def _pulse_train(self, log_f0: Floats) -> NDArray[np.float64]:
        f0_hz = np.clip(np.exp(log_f0.astype(np.float64)), 60, 450)
        known = np.concatenate([[f0_hz[0] if self._f0_hz is None else self._f0_hz], f0_hz])
        self._f0_hz = float(f0_hz[-1])
        rising = np.arange(1, HOP + 1) / HOP
        f0_hz = (known[:-1, None] + np.diff(known)[:, None] * rising).ravel()
        phase = self._phase + np.cumsum(f0_hz / SPEAKER_RATE_HZ)
        self._phase = float(phase[-1] % 1)
        return pulses_at(phase % 1, f0_hz)

    def _overlap(self, pieces: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pieces [T, FFT] start one hop apart; what reaches beyond the last hop is carried on."""
        hops, rows = len(pieces), FFT // HOP + 1
        pieces = np.pad(pieces, ((0, 0), (0, rows * HOP - FFT))).reshape(hops, rows, HOP)
        out = np.zeros((hops + rows - 1, HOP))
        out[: rows - 1] = self._tail.reshape(rows - 1, HOP)
        for row in range(rows):
            out[row : row + hops] += pieces[:, row]
        self._tail = out[hops:].ravel()
        return out[:hops].ravel()


def _halves(before: NDArray[np.float64], fresh: NDArray[np.float64]) -> tuple[NDArray[np.complex128], Any]:
    """Spectra of all windows of two hops that end with a fresh hop, and the last hop."""
    whole = np.concatenate([before, fresh]).reshape(-1, HOP)
    return np.fft.rfft(np.concatenate([whole[:-1], whole[1:]], 1) * _WINDOW, FFT), whole[-1]


def pulses_at(phase: NDArray[np.float64], f0_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """All harmonics in phase up to 11.7 kHz, scaled as if up to 7.8 kHz they had unit power: what the net was
    trained with.
    """
    harmonics, trained = np.floor(0.4875 * SPEAKER_RATE_HZ / f0_hz), np.floor(7800 / f0_hz)
    sine = np.sin(np.pi * phase)
    peak = np.abs(sine) < 1e-4
    kernel = np.sin((2 * harmonics + 1) * np.pi * phase) / np.where(peak, 1, sine)
    return (np.where(peak, 2 * harmonics + 1, kernel) - 1) / np.sqrt(2 * trained)


def white(seed: np.uint64, begin: int, count: int) -> NDArray[np.float64]:
    """Uniform white noise by hashing sample indices (splitmix64), with the density per Hz of unit power at 16 kHz."""
    x = (np.arange(begin, begin + count, dtype=np.uint64) + (seed << np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniform = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (uniform - 0.5) * np.sqrt(12 * SPEAKER_RATE_HZ / 16000)


def response(bands: Floats, rise: Floats) -> NDArray[np.complex128]:
    """Log band gains [T, 64], and what to add to the last at `TOPS_HZ` [T, 4] -> minimum-phase spectrum [T, 513], by
    the folded cepstrum.
    """
    points = np.concatenate([bands, bands[:, -1:] + rise], 1)
    log_gain = np.clip(points[:, _BELOW] * (1 - _SHARE) + points[:, _BELOW + 1] * _SHARE, -12, 6)
    return np.exp(np.fft.rfft(np.fft.irfft(log_gain, FFT) * _FOLD, FFT))


def _bands_of_bins() -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """For each bin the band below it, and how far it is on the way to the next.

    Bands lie evenly on the mel scale from 0 to 8 kHz, then at `TOPS_HZ`; beyond, the last one counts.
    """
    edges_hz = 700 * ((1 + TRAINED_TOP_HZ / 700) ** np.linspace(0, 1, BANDS) - 1)
    points_hz = np.append(edges_hz, TOPS_HZ)
    place = np.interp(np.fft.rfftfreq(FFT, 1 / SPEAKER_RATE_HZ), points_hz, np.arange(len(points_hz)))
    below = np.minimum(place.astype(np.intp), len(points_hz) - 2)
    return below, place - below


_WINDOW = np.hanning(2 * HOP + 1)[:-1]
_FOLD = np.where(np.arange(FFT) < FFT // 2, 2.0, 0.0)
_FOLD[[0, FFT // 2]] = 1
_BELOW, _SHARE = _bands_of_bins()
