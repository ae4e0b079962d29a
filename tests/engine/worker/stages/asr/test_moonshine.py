"""Streaming ears of Moonshine: the library itself, with networks of a few nodes, on recorded speech."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.chunk import Transcript, Word
from engine.core import MIC_RATE_HZ, Pcm
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.training.nano.eval_ears import SPOKEN, read
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import Desk, opened, until, working

pytest.importorskip("moonshine_voice")
pytest.importorskip("onnx")

from tests.engine.worker.stages.asr import tiny_moonshine
from tests.engine.worker.stages.asr.test_sherpa import cut, heard, pieces, without

BLOCK = MIC_RATE_HZ // 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_moonshine.streaming(tmp_path_factory.mktemp("ears") / "tiny-streaming-en")


@pytest.fixture(scope="module")
def said() -> list[Pcm]:
    """What several people said, from the first voice on: silence before it is not looked at."""
    recordings = [recording.pcm for recording in read(SPOKEN)[:6]]
    return [pcm[int(np.argmax(np.abs(pcm) > 500)) :] for pcm in recordings]


def ears(folder: Path | None, **options: Any) -> Any:
    return make("asr.moonshine", "ears", 0, StageConfig(weights=folder, slots=32, options=options))


def alone(stage: Any, pcm: Pcm) -> tuple[list[str], str]:
    """What the library hears of a line, half a second at a time, behind which it is silent: by block, and in all."""
    stream = stage._ears.transcriber().create_stream(1e9)
    stream.start()
    partials: list[str] = []
    whole = len(pcm) // BLOCK * BLOCK
    for block in (*(pcm[at : at + BLOCK] for at in range(0, whole, BLOCK)), np.pad(pcm[whole:], (0, 3072))):
        stream.add_audio((block.astype(np.float32) / 32768).tolist())
        partials.append(" ".join(line.text for line in stream.update_transcription(1).lines if line.text))
    stream.add_audio([0.0] * 3072)
    stream.set_transcribe_flags(1)
    final = " ".join(line.text for line in stream.stop().lines)
    stream.close()
    return partials[:-1], final


async def spoken(desk: Desk, run: str, pcm: Pcm, size: int = 1600) -> tuple[list[str], list[Transcript]]:
    desk.put(opened(run, "ears", credit=10_000, live=True), *(messages.Feed(run, piece) for piece in pieces(pcm, size)))
    desk.put(messages.End(run))
    await desk.ended(run)
    return heard(desk, run)


@pytest.mark.parametrize("size", [320, 1600, 10_000_000])
async def test_what_is_heard_is_what_the_library_hears_alone(folder: Path, said: list[Pcm], size: int) -> None:
    stage = ears(folder)
    library = [alone(stage, pcm) for pcm in said]
    async with working(stage) as desk:
        for n, (pcm, (by_block, whole)) in enumerate(zip(said, library, strict=True)):
            partials, (final,) = await spoken(desk, f"{n}", pcm, size)
            assert final.text == whole
            assert [*dict.fromkeys(partials)] == [*dict.fromkeys(text for text in by_block if text)]
    assert len({whole for _, whole in library}) > 3


async def test_a_turn_is_heard_from_its_first_sample_to_its_last_whoever_spoke_before(
    folder: Path, said: list[Pcm]
) -> None:
    """The library's own detector of voices, which it shares between all users, decides nothing here."""
    stage = ears(folder)
    async with working(stage) as desk:
        for n, pcm in enumerate([*said, *reversed(said)]):
            (final,) = (await spoken(desk, f"{n}", pcm))[1]
            behind = np.pad(pcm, (0, 2 * 3072))
            assert final.text == tiny_moonshine.words_of(behind[: len(behind) // 512 * 512])


async def test_words_come_while_the_user_speaks(folder: Path, said: list[Pcm]) -> None:
    async with working(ears(folder)) as desk:
        desk.put(opened("a", "ears", live=True), *(messages.Feed("a", piece) for piece in pieces(said[0])))
        await until(lambda: len(heard(desk, "a")[0]) >= 2)
        desk.put(messages.Close("a"))


async def test_those_who_speak_at_once_are_heard_each_for_themselves(folder: Path, said: list[Pcm]) -> None:
    stage = ears(folder)
    assert stage.info.slots == 4
    async with working(stage, max_batch=4) as desk:
        for n in range(4):
            desk.put(opened(f"{n}", "ears", credit=10_000, live=True))
        for at in range(0, max(map(len, said[:4])), 1600):
            desk.put(
                *(messages.Feed(f"{n}", one) for n, pcm in enumerate(said[:4]) for one in pieces(pcm[at : at + 1600]))
            )
        desk.put(*(messages.End(f"{n}") for n in range(4)))
        await desk.ended(*map(str, range(4)))
        assert [heard(desk, f"{n}")[1][0].text for n in range(4)] == [alone(stage, pcm)[1] for pcm in said[:4]]
    assert len(stage._transcribers) == 4


async def test_who_comes_after_another_hears_nothing_of_theirs(folder: Path, said: list[Pcm]) -> None:
    stage = ears(folder, users=1)
    async with working(stage, max_batch=1) as desk:
        desk.put(opened("left", "ears", live=True), *(messages.Feed("left", piece) for piece in pieces(said[0])))
        await until(lambda: bool(heard(desk, "left")[0]))
        desk.put(messages.Close("left"))
        assert (await spoken(desk, "b", said[1]))[1][0].text == alone(stage, said[1])[1]
    assert len(stage._streams) == 1


async def test_the_last_word_is_heard_wherever_the_turn_ends(folder: Path, said: list[Pcm]) -> None:
    """Nothing is lost of what came since the library's last look: a second more has two words more."""
    stage, counts = ears(folder), dict[int, int]()
    async with working(stage) as desk:
        for samples in (*range(16_000, 24_000, 1777), *range(32_000, 40_000, 1777)):
            (final,) = (await spoken(desk, f"{samples}", said[0][:samples]))[1]
            assert final.text == alone(stage, said[0][:samples])[1]
            counts[samples] = len(final.text.split())
    assert all(counts[samples + 16_000] == counts[samples] + 2 for samples in range(16_000, 24_000, 1777))


async def test_a_long_turn_is_heard_in_lines_that_end_at_pauses(folder: Path, said: list[Pcm]) -> None:
    stage = ears(folder)
    pause = np.zeros(MIC_RATE_HZ // 2, np.int16)
    pcm = np.concatenate([part for one in said for part in (one, pause)] * 2)
    assert len(pcm) > 30 * MIC_RATE_HZ
    async with working(stage) as desk:
        texts = [(await spoken(desk, f"{size}", pcm, size))[1][0].text for size in (1600, len(pcm))]
    assert texts[0] == texts[1], "however it comes"
    streams = len(pcm) / MIC_RATE_HZ / 14, len(pcm) / MIC_RATE_HZ / 8
    assert len(texts[0].split()) == pytest.approx(2 * len(pcm) / MIC_RATE_HZ, abs=streams[1] + 2)


async def test_silence_before_somebody_speaks_is_not_looked_at(folder: Path, said: list[Pcm]) -> None:
    stage, silence = ears(folder), np.zeros(3 * BLOCK, np.int16)
    async with working(stage) as desk:
        (final,) = (await spoken(desk, "a", np.concatenate([silence, said[3]])))[1]
    assert final.text == alone(stage, said[3])[1]


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), np.zeros(5, np.int16), np.zeros(40_000, np.int16)])
async def test_silence_is_not_understood(folder: Path, pcm: Pcm) -> None:
    async with working(ears(folder)) as desk:
        assert await spoken(desk, "a", pcm) == ([], [Transcript("", final=True, understood=False)])


class Line:
    """A line as the library tells it."""

    def __init__(self, text: str, words: Any = None) -> None:
        self.text, self.words = text, words


class Lines:
    def __init__(self, *lines: Line) -> None:
        self.lines = lines


def test_words_have_times_where_the_library_tells_them_of_all_lines() -> None:
    from engine.worker.stages.asr.moonshine import MoonshineUtterance

    hearing, timing = MoonshineUtterance(), sys.modules["moonshine_voice.moonshine_api"].WordTiming
    hearing.read(Lines(Line("Hello  there.", [timing("Hello", 0.1, 0.5, 0.9), timing("there.", 0.5, 0.8, 0.9)])))
    hearing.line = 2 * MIC_RATE_HZ
    hearing.settle()
    hearing.read(Lines(Line("you")))
    assert (hearing.spoken.text, hearing.spoken.words) == ("Hello there. you", ())
    hearing.read(Lines(Line("it", [timing("it", 1.0, 1.2, 0.5)])))
    assert hearing.spoken.text == "Hello there. it"
    assert hearing.spoken.words == (Word("Hello", 0.1, 0.5), Word("there.", 0.5, 0.8), Word("it", 3.0, 3.2))


async def test_a_turn_that_breaks_the_library_ends_in_one_error_and_its_slot_hears_again(
    folder: Path, said: list[Pcm]
) -> None:
    stage = ears(folder, users=1)

    class Broken:
        def create_stream(self, interval_s: float) -> Any:
            raise RuntimeError("a node of the network broke")

    stage._transcribers[0] = Broken()
    async with working(stage, max_batch=1) as desk:
        desk.put(
            opened("a", "ears", credit=10_000),
            *(messages.Feed("a", piece) for piece in pieces(said[0])),
            messages.End("a"),
        )
        await until(lambda: bool(desk.of(messages.Failed, "a")))
        assert [failed.code for failed in desk.of(messages.Failed, "a")] == ["stage_failed"]
        assert (await spoken(desk, "b", said[1]))[1][0].text == alone(stage, said[1])[1]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (without("tokenizer.bin"), "has no tokenizer.bin. Download the complete streaming model"),
        (without("adapter.ort"), "has no adapter.ort. Download the complete streaming model"),
        (without("streaming_config.json"), "has no streaming_config.json. Download the complete streaming model"),
        (lambda folder: (folder / "decoder_kv.ort").write_bytes(b""), "has no decoder_kv.ort"),
        (cut("streaming_config.json"), r"streaming_config\.json is not a Moonshine configuration or is incomplete"),
        (lambda folder: tiny_moonshine.streaming(folder, depth=0), "is not a Moonshine configuration"),
        (lambda folder: (folder / "encoder.ort").write_bytes(b"x" * 5000), "cannot be loaded"),
    ],
)
def test_ears_that_cannot_be_loaded_are_told_in_one_sentence(
    tmp_path: Path, harm: Callable[[Path], Any], reason: str
) -> None:
    found = tiny_moonshine.streaming(tmp_path)
    harm(found)
    with pytest.raises(WeightsError, match=reason):
        ears(found)


def test_ears_that_are_nowhere_are_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="There is no folder"):
        ears(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"asr\.moonshine needs `weights`"):
        ears(None)
    with pytest.raises(ConfigError, match=r"options\.langages: unknown key"):
        ears(tiny_moonshine.streaming(tmp_path), langages=["en"])
    with pytest.raises(ConfigError, match=r"options\.users: must be at least 1"):
        ears(tmp_path, users=0)


def test_without_the_package_it_is_said_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moonshine_voice.transcriber", None)
    with pytest.raises(ConfigError, match=r"needs the package moonshine-voice: .+ pip install .+\[moonshine\]"):
        ears(folder)


@pytest.mark.parametrize(
    ("path", "architecture", "languages"),
    [
        ("small-streaming-en", "SMALL_STREAMING", ("en",)),
        ("moonshine-en/model/medium-streaming-en/quantized_26_07_30", "MEDIUM_STREAMING", ("en",)),
        ("mine", "TINY_STREAMING", ()),
    ],
)
def test_the_folders_name_says_what_it_is(
    tmp_path: Path, path: str, architecture: str, languages: tuple[str, ...]
) -> None:
    """A model of the catalogue lies in a folder beneath its own, as in the repository."""
    tiny_moonshine.streaming(tmp_path / path)
    stage = ears(tmp_path / path.split("/")[0])
    assert (stage._ears.architecture, stage.info.facets.heard_languages) == (architecture, languages)
    assert stage.info.blocking
    assert stage.info.hears_only


ALONE = """
import socket, sys

def none(*_, **__):
    raise AssertionError("it tried a connection")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = none
import numpy as np
from pathlib import Path
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig

stage = make("asr.moonshine", "ears", 0, StageConfig(weights=Path(sys.argv[1])))
stage.warm_up()
assert not {"sounddevice", "requests", "moonshine_voice.mic_transcriber"} & {*sys.modules}
"""


def test_it_reaches_out_nowhere_and_opens_no_microphone(folder: Path) -> None:
    """In a process where no connection can be made; the library itself has no socket among what it calls."""
    subprocess.run([sys.executable, "-c", ALONE, str(folder)], check=True, timeout=60)
    import moonshine_voice

    native = (Path(moonshine_voice.__file__).parent / "libmoonshine.so").read_bytes()
    assert b"getaddrinfo\0" not in native
    assert b"curl_easy" not in native


@pytest.mark.parametrize(
    "order",
    ["moonshine_voice.transcriber onnxruntime sherpa_onnx", "sherpa_onnx onnxruntime moonshine_voice.transcriber"],
)
def test_its_onnx_runtime_lives_beside_the_others_in_one_process(folder: Path, order: str) -> None:
    program = ALONE.replace("import numpy as np", "\n".join(f"import {name}" for name in order.split()))
    program = program.replace('{"sounddevice", "requests", ', "{")
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)
