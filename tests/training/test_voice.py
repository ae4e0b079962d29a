"""nano's voice as it ships: the ONNX files against eager torch, cuts against the whole, and whether one understands it.

Beside every gate stands a control that breaks the thing and sees the gate close.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import nn

from engine.chunk import Codes, Text, texts
from engine.core import Request
from engine.errors import RequestError, WeightsError
from engine.training.nano import meter
from engine.training.nano.align import LETTERS as TRAINED_LETTERS
from engine.training.nano.align import Aligner, letter_ends
from engine.training.nano.align import letters as letter_ids
from engine.training.nano.code2wav import Filters
from engine.training.nano.code2wav import Source as TrainedSource
from engine.training.nano.corpus import normalise, unseen
from engine.training.nano.export import blank_codec, export, graphs, halve, load, read_voice, weights
from engine.training.nano.features import log_mel
from engine.training.nano.speak import Steady, Voice, drive, sound
from engine.training.nano.talker import Block, Talker, TalkerStep, places_of
from engine.worker.codec import Window
from engine.worker.models.nano import inference
from engine.worker.models.nano import source as nano_source
from engine.worker.models.nano import talker as nano_talker
from engine.worker.models.nano import voice as nano_voice
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import only

WEIGHTS = Path(nano_voice.__file__).parents[3] / "weights" / "nano"
TEXT = "Hello, I am nano. It is 3:30, and you owe me $5."


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice()


@pytest.fixture(scope="module")
def eager() -> tuple[Talker, Filters]:
    torch.set_num_threads(1)
    return read_voice(WEIGHTS)


def frames_of(voice: Voice, text: str, /, **fields: float | str) -> list[Codes]:
    """The talker's chunks for a whole text."""
    request = Request(id="r", session="s", messages=(), **fields)  # pyright: ignore[reportArgumentType]

    async def read() -> list[Codes]:
        req = StageRequest(request, 0, Steady(5))
        return only(Codes, [chunk async for chunk in drive(voice.talker, req, [Text(text, 0)])])

    return asyncio.run(read())


def codes_of(voice: Voice, text: str, name: str = "rms") -> NDArray[np.int64]:
    return np.concatenate([chunk.frames for chunk in frames_of(voice, text, voice=name)]).astype(np.int64)


def eager_states(talker: Talker, text: str, speaker: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States [L, 192] and end times [L] of a spoken text, all at once."""
    ids = letter_ids(meter.spoken(text))
    letters = torch.tensor([ids + [0] * nano_talker.REACH])
    states, duration, _, _ = talker.text(letters, torch.tensor([speaker]))
    duration = duration[0, : len(ids)].double()
    seconds = torch.where(duration[:, 1] > 0, torch.exp(duration[:, 0]), 0.0)
    return states[0, : len(ids)], torch.cumsum(seconds, 0)


@torch.no_grad()
def eager_agreement(talker: Talker, voice: Voice, text: str, name: str = "rms") -> float:
    """Share of the engine's codes that eager torch picks too, given the frames before as the engine spoke them."""
    speaker = nano_voice.VOICES.index(name)
    codes = torch.from_numpy(codes_of(voice, text, name)) + nano_voice.SIZE * speaker
    states, ends_s = eager_states(talker, text, speaker)
    index, places = places_of(ends_s.float(), len(codes))
    latent = torch.stack([talker.books[i][codes[:, i]] for i in range(codes.shape[1])]).sum(0)
    previous = torch.cat([torch.zeros_like(latent[:1]), latent[:-1]])
    unknown = torch.arange(len(codes)) == 0
    given = torch.tensor([speaker])
    x = talker.frames(talker.enter(states[index][None], places[None], previous[None], unknown[None], given), given)
    picked, _ = talker.pick(x[0], given.expand(len(codes)))
    return float((picked == codes).float().mean())


class TestExport:
    @pytest.mark.parametrize("name", nano_voice.VOICES)
    def test_the_talker_in_steps_is_the_talker_in_torch(
        self, voice: Voice, eager: tuple[Talker, Filters], name: str
    ) -> None:
        assert eager_agreement(eager[0], voice, TEXT, name) > 0.99

    def test_control_another_weight_is_another_talker(self, voice: Voice) -> None:
        talker, _ = read_voice(WEIGHTS)
        with torch.no_grad():
            cast(Block, talker.blocks[0]).out.weight.zero_()
        assert eager_agreement(talker, voice, TEXT) < 0.9

    @pytest.mark.parametrize("name", nano_voice.VOICES)
    def test_code2wav_is_the_same_in_torch(self, voice: Voice, eager: tuple[Talker, Filters], name: str) -> None:
        codes, speaker = codes_of(voice, TEXT, name)[None], nano_voice.VOICES.index(name)
        made = engine_controls(voice, codes, speaker)
        with torch.no_grad():
            expected, _, _ = eager[1](torch.from_numpy(codes), torch.tensor([speaker]), *eager[1].initial(1))
        assert np.abs(made - expected.numpy()).max() < 1e-3

    def test_rendering_at_24_khz_keeps_the_spectrum_of_the_training_synthesizer(self, voice: Voice) -> None:
        controls = engine_controls(voice, codes_of(voice, TEXT)[None])[0]
        rendered = resample_poly(nano_source.ExcitationSource().render(controls), 2, 3)
        assert mel_distance(rendered, controls) < 0.35

    def test_control_a_wrong_rate_is_another_spectrum(self, voice: Voice) -> None:
        controls = engine_controls(voice, codes_of(voice, TEXT)[None])[0]
        rendered = nano_source.ExcitationSource().render(controls)[: len(controls) * 160]
        assert mel_distance(rendered, controls) > 0.7

    def test_weights_survive_the_way_to_onnx_and_back(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        filters = Filters([replace(blank_codec(), books=torch.randn(8, 512, 64)) for _ in range(2)])
        with torch.no_grad():
            for value in filters.parameters():  # weights that are equal, as fresh ones are, would share one place
                value.normal_(std=0.1)
        graph = graphs(Talker(torch.randn(8, 1024, 64)), filters)["code2wav"]
        export(graph, tmp_path / "code2wav.onnx")
        again = Filters([blank_codec(), blank_codec()])
        load(again, weights(tmp_path / "code2wav.onnx"))
        for name, value in filters.state_dict().items():
            assert torch.allclose(again.state_dict()[name], value, atol=2e-3, rtol=1e-3), name
        assert onnx.load(tmp_path / "code2wav.onnx").ByteSize() < 0.6 * 4 * sum(
            v.numel() for v in filters.state_dict().values()
        )

    def test_missing_weights_are_named(self) -> None:
        with pytest.raises(ValueError, match=r"enter\.weight"):
            load(Filters([blank_codec()]), {})

    def test_step_and_sequence_agree_before_any_training(self) -> None:
        torch.manual_seed(1)
        talker, speaker = Talker(torch.randn(8, 1024, 64)).eval(), torch.tensor([1])
        nn.init.normal_(talker.speaker.weight)
        step = TalkerStep(talker)
        frames = 70  # more than two windows
        states, places, previous = torch.randn(1, frames, 192), torch.rand(1, frames, 6), torch.randn(1, frames, 64)
        ring = torch.zeros(1, 4, 2, 4, 31, 48)
        picked = []
        with torch.no_grad():
            for t in range(frames):
                alone = torch.tensor([0]), torch.ones(1), speaker
                codes, _, new = step(states[:, t], places[:, t], previous[:, t], torch.tensor([t]), ring, *alone)
                ring[:, :, :, :, t % 31] = new
                picked.append(codes)
            x = talker.enter(states, places, previous, torch.arange(frames)[None] == 0, speaker)
            x = talker.frames(x, speaker)
            whole, _ = talker.pick(x[0], speaker.expand(frames))
            assert float((whole - nano_voice.SIZE == torch.cat(picked)).float().mean()) > 0.99

    def test_a_voice_that_has_learned_nothing_is_the_first_with_its_own_codes(self) -> None:
        talker = Talker(torch.randn(8, 1024, 64)).eval()
        rows = torch.randn(2, 192), torch.rand(2, 6), torch.zeros(2, 64), torch.zeros(2, dtype=torch.long)
        alone = torch.zeros(2, 4, 2, 4, 31, 48), torch.arange(2), torch.ones(2)
        with torch.no_grad():
            first = TalkerStep(talker)(*rows, *alone, torch.tensor([0, 0]))
            second = TalkerStep(talker)(*rows, *alone, torch.tensor([1, 1]))
        assert torch.equal(first[2], second[2])
        assert not torch.equal(first[0], second[0])
        for codes in (first[0], second[0]):
            assert 0 <= int(codes.min()) <= int(codes.max()) < nano_voice.SIZE

    def test_halving_keeps_small_weights(self) -> None:
        small = onnx.numpy_helper.from_array(np.ones(8, np.float32), "small")
        large = onnx.numpy_helper.from_array(np.ones(5000, np.float32), "large")
        model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [small, large]))
        halve(model)
        kinds = {weight.name: weight.data_type for weight in model.graph.initializer}
        assert kinds == {"small": onnx.TensorProto.FLOAT, "large.half": onnx.TensorProto.FLOAT16}


def engine_controls(voice: Voice, codes: NDArray[np.int64], speaker: int = 0) -> NDArray[np.float32]:
    stage = voice.code2wav
    tails = {"slow": np.zeros_like(stage._slow[:1]), "fast": np.zeros_like(stage._fast[:1])}
    return inference.run(stage._net, ("controls",), {"codes": codes, "voice": np.array([speaker])} | tails)[0]


def mel_distance(rendered: NDArray[np.float32], controls: NDArray[np.float32]) -> float:
    """Mean difference of log-mel to what the training's synthesizer makes of the same controls, where it sounds."""
    torch.manual_seed(0)
    given = torch.from_numpy(controls)[None]
    expected = log_mel(TrainedSource()(given[..., 0], given[..., 1 : 1 + 2 * nano_source.BANDS])[0])
    made = log_mel(torch.from_numpy(np.ascontiguousarray(rendered)).float())
    pairs = [(made[shift:], expected[: len(expected) - shift]) for shift in (0, 1)]
    return min(float((a[: len(b)] - b[: len(a)])[b[: len(a)] > -3].abs().mean()) for a, b in pairs)


class TestStream:
    @pytest.mark.parametrize("frames", [1, 2, 3, 7, 25])
    def test_the_stream_is_the_whole(self, voice: Voice, frames: int) -> None:
        whole, cut = voice.say(TEXT, frames=4096), voice.say(TEXT, frames=frames)
        assert len(whole) == len(cut)
        farthest = np.abs(whole - cut).max()
        print(f"stream against whole decode: {farthest:.1e}")
        assert farthest <= 1e-4

    def test_control_a_tail_that_is_not_carried_is_heard(self, voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = voice.say(TEXT, frames=4096)
        overlap = nano_source.ExcitationSource._overlap

        def forgetful(source: nano_source.ExcitationSource, pieces: NDArray[np.float64]) -> NDArray[np.float64]:
            source._remainder[:] = 0
            return overlap(source, pieces)

        monkeypatch.setattr(nano_source.ExcitationSource, "_overlap", forgetful)
        assert np.abs(whole - voice.say(TEXT, frames=3)).max() > 1e-3

    def test_text_in_letters_or_at_once_sounds_the_same(self, voice: Voice) -> None:
        async def say(pieces: list[str]) -> NDArray[np.float32]:
            return sound(await voice.chunks(list(texts(pieces)), Steady(5)))

        assert np.array_equal(asyncio.run(say(list(TEXT))), asyncio.run(say([TEXT])))

    @pytest.mark.parametrize("names", [("rms", "rms", "rms"), ("slt", "rms", "awb")])
    def test_a_batch_speaks_as_each_alone(self, voice: Voice, names: tuple[str, ...]) -> None:
        said = ["Hello there.", "One, two, three, four.", "Yes."]
        alone = [codes_of(voice, text, name) for text, name in zip(said, names, strict=True)]
        requests = [Request(id="r", session="s", messages=(), voice=name) for name in names]
        reqs = [StageRequest(request, slot, Steady(5)) for request, slot in zip(requests, (3, 0, 5), strict=True)]
        together: list[list[NDArray[np.int16]]] = [[] for _ in reqs]
        for req, text in zip(reqs, said, strict=True):
            voice.talker.open(req)
            speller = nano_talker.Speller()
            req.pending.append(speller.feed(text) + speller.flush())
            req.ended = True
        while alive := [req for req in reqs if not req.done]:
            for req, chunks in zip(alive, voice.talker.step(alive), strict=True):
                frames = [chunk.frames for chunk in chunks if isinstance(chunk, Codes)]  # type: ignore[union-attr]
                together[reqs.index(req)] += frames
        for one, many in zip(alone, together, strict=True):
            assert float((one == np.concatenate(many)).mean()) > 0.99

    def test_a_batch_of_voices_sounds_as_each_alone(self, voice: Voice) -> None:
        codes = codes_of(voice, "Hello there.")[:20].astype(np.int16)

        def render(names: Sequence[str]) -> list[NDArray[np.float32]]:
            asked = [Request(id="r", session="s", messages=(), voice=name) for name in names]
            reqs = [StageRequest(request, slot, Steady(5)) for slot, request in enumerate(asked)]
            for req in reqs:
                voice.code2wav.open(req)
                req.pending.append(Window(codes))
            return [given[0].wave for given in voice.code2wav.step(reqs)]  # type: ignore[index]

        together = render(nano_voice.VOICES)
        for name, sound_ in zip(nano_voice.VOICES, together, strict=True):
            assert np.abs(render([name])[0] - sound_).max() < 1e-4
        assert np.abs(together[0] - together[1]).max() > 0.01
        assert np.abs(together[0] - together[2]).max() > 0.01

    def test_voices_differ_and_the_first_speaks_where_none_is_asked_for(self, voice: Voice) -> None:
        said = {name: codes_of(voice, TEXT, name) for name in nano_voice.VOICES}
        assert len({codes.tobytes() for codes in said.values()}) == len(nano_voice.VOICES)
        default = np.concatenate([chunk.frames for chunk in frames_of(voice, TEXT)])
        assert np.array_equal(default, said[nano_voice.VOICES[0]])

    @pytest.mark.parametrize("name", ["", "RMS", "alloy", "slt\n" * 100])
    def test_a_voice_that_is_not_there_is_refused(self, voice: Voice, name: str) -> None:
        request = Request(id="r", session="s", messages=(), voice=name)
        for stage in (voice.talker, voice.code2wav):
            with pytest.raises(RequestError, match=r"nano has no voice .*: rms, slt, awb"):
                stage.open(StageRequest(request, 0, Steady(5)))

    def test_sound_follows_the_text(self, voice: Voice) -> None:
        ends = [chunk.text_end for chunk in frames_of(voice, TEXT)]
        assert ends == sorted(ends)
        assert ends[-1] == len(TEXT)
        assert ends[len(ends) // 2] < len(TEXT)

    def test_speed_and_limit(self, voice: Voice) -> None:
        frames = len(frames_of(voice, TEXT))
        assert 0.45 * frames < len(frames_of(voice, TEXT, speed=2.0)) < 0.55 * frames
        assert len(frames_of(voice, TEXT, max_audio_s=7 * 0.04)) == 7

    @pytest.mark.parametrize("text", ["", "   ", "👍", "\n\n", "..."])
    def test_nothing_to_say_is_silence_and_an_end(self, voice: Voice, text: str) -> None:
        assert len(voice.say(text)) == 0

    @pytest.mark.parametrize("rise", [0.0, -2.0, 1.0])
    def test_the_top_octave_is_as_loud_as_it_is_told(self, rise: float) -> None:
        bands = nano_source.BANDS
        controls = np.full((300, 1 + 2 * bands + len(nano_source.TOPS_HZ)), -12, np.float32)
        controls[:, 0], controls[:, 1 + bands : 1 + 2 * bands], controls[:, 1 + 2 * bands :] = np.log(120), -3, rise
        power = np.abs(np.fft.rfft(nano_source.ExcitationSource().render(controls))) ** 2
        at_hz = np.fft.rfftfreq(300 * nano_source.HOP, 1 / 24000)
        top, below = power[(at_hz > 8600) & (at_hz < 11400)].mean(), power[(at_hz > 4000) & (at_hz < 7500)].mean()
        assert abs(np.log(top / below) / 2 - rise) < 0.1

    def test_noise_depends_on_seed_and_place_alone(self) -> None:
        whole = nano_source.white(np.uint64(3), 0, 1000)
        assert np.array_equal(whole[400:], nano_source.white(np.uint64(3), 400, 600))
        assert not np.array_equal(whole, nano_source.white(np.uint64(4), 0, 1000))
        assert abs(whole.mean()) < 0.1
        assert abs(whole.var() - 1.5) < 0.15

    def test_weights_that_are_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match=r"talker_text\.onnx is missing"):
            nano_talker.Talker(StageConfig(weights=tmp_path))
        (tmp_path / "talker_text.onnx").write_bytes(b"no model")
        with pytest.raises(WeightsError, match="cannot be loaded"):
            nano_talker.Talker(StageConfig(weights=tmp_path))


class TestAlignment:
    def test_alphabets_agree(self) -> None:
        assert TRAINED_LETTERS == nano_talker.LETTERS

    def test_letters_take_the_times_of_their_phones(self) -> None:
        phones = [0, 7, 1]
        aligner = Aligner()
        aligner.emission[letter_ids("b")[1], 7] = 0
        path = aligner.align(letter_ids("ba"), phones)
        assert path is not None
        assert [phone for spoken in path for phone in spoken] == phones
        assert letter_ends(path, [0.02, 0.1, 0.3])[-1] == 0.3

    def test_evaluation_sentences_are_kept_out(self) -> None:
        kept = meter.sentences("assistant")[0]
        lines = iter([kept.lower().rstrip("."), "another one.", "another one?"])
        assert list(unseen(lines, {normalise(kept)})) == ["another one."]


@pytest.mark.slow
class TestIntelligibility:
    """A handful of the evaluation sentences; the whole sets are the meter's business (see engine/training/nano)."""

    def test_one_understands_it_nearly_as_well_as_the_teacher(self, voice: Voice) -> None:
        texts, teacher = meter.sentences("assistant")[::10], meter.teacher_scores("assistant")[::10]
        heard = [meter.score(text, resample_poly(voice.say(text), 2, 3)) for text in texts]
        known = sum(teacher, meter.Score())
        assert sum(heard, meter.Score()).word_accuracy >= 0.9 * known.word_accuracy

    def test_control_frames_out_of_order_are_not_understood(self, voice: Voice) -> None:
        text = meter.sentences("assistant")[0]
        codes = codes_of(voice, text)
        codes = codes[np.random.default_rng(0).permutation(len(codes))]
        controls = engine_controls(voice, codes[None])[0]
        wave = resample_poly(nano_source.ExcitationSource().render(controls), 2, 3)
        assert meter.score(text, wave).word_accuracy < 0.5


@pytest.mark.bench
def test_real_time_factor_of_one_thread(voice: Voice) -> None:
    voice.say(TEXT)
    began = time.process_time()
    seconds = sum(len(voice.say(TEXT)) for _ in range(5)) / 24000
    assert (time.process_time() - began) / seconds <= 0.12
