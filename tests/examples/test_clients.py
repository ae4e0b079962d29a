"""The examples that are clients, each against a server with the built-in model."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import time
from collections.abc import Generator
from fractions import Fraction
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import av
import numpy as np
import pytest

from app.bench import subject
from app.client import AudioDelta
from tests.examples.programs import (
    EXAMPLES,
    PATIENCE_S,
    STAND_IN,
    environment,
    python,
    ran,
    sound_s,
    spoken,
    written,
)


@pytest.fixture(scope="module")
def ws() -> Generator[str]:
    """The address of a server with the built-in model."""
    with subject.running(None) as server:
        yield server.url


@pytest.fixture
def http(ws: str) -> str:
    return ws.replace("ws:", "http:")


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_a_plain_websocket_gets_words_and_sound(scheme: str, ws: str, tmp_path: Path) -> None:
    url = ws.replace("ws:", f"{scheme}:")
    assert "morning" in ran(python("raw_websocket.py", "Say good morning.", "--url", url), tmp_path).lower()
    assert sound_s(tmp_path / "answer.wav") > 0.3


def test_a_plain_websocket_asks_a_spoken_question(http: str, tmp_path: Path) -> None:
    question = written(tmp_path / "question.wav", spoken(http, "Repeat after me: good morning."))
    command = python("raw_websocket.py", "--audio", str(question), "--url", http)
    assert "good morning" in ran(command, tmp_path).lower()
    assert sound_s(tmp_path / "answer.wav") > 0.3


@pytest.mark.node
def test_node_gets_words_and_sound(ws: str, tmp_path: Path) -> None:
    client = ["node", "--experimental-websocket", "--no-warnings", str(EXAMPLES / "node_client.mjs")]
    assert "morning" in ran([*client, "Say good morning.", ws], tmp_path).lower()
    assert sound_s(tmp_path / "answer.wav") > 0.3


@pytest.mark.parametrize(
    ("question", "called", "answer"),
    [
        ("Set a timer for ten minutes.", "(a timer runs for 10 minutes)", "Done"),
        ("What's the weather in Paris?", "(looked up the weather of Paris)", "sunny"),
    ],
)
def test_the_model_calls_the_functions_of_the_program(
    http: str, tmp_path: Path, question: str, called: str, answer: str
) -> None:
    printed = ran(python("tool_calling.py", question, "--url", http), tmp_path).splitlines()
    assert printed[0] == called
    assert answer in printed[-1]


def test_the_microphone_is_heard_the_answer_played_and_interrupted(http: str, tmp_path: Path) -> None:
    """The second question comes while the first answer plays: eight seconds of numbers, which stop at once."""
    silence = np.zeros(12_000, np.int16)
    said = written(tmp_path / "said.wav", np.concatenate([silence, spoken(http, "Count to nineteen.")]))
    then = written(tmp_path / "second.wav", spoken(http, "What do you see?"))
    played = tmp_path / "played"
    with subprocess.Popen(
        python("microphone.py", "--url", http), cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(
            PARLEY_TEST_SAID=str(said), PARLEY_TEST_THEN=str(tmp_path / "then.wav"), PARLEY_TEST_PLAYED=str(played)
        ),
    ) as client:  # fmt: skip
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "\n"
            assert "count to nineteen" in client.stdout.readline().lower()
            assert client.stdout.read(len("answer: ")) == "answer: "
            while loud_s(played) < 0.5:
                time.sleep(0.05)
            then.rename(tmp_path / "then.wav")
            answer = client.stdout.readline()
            assert "what do you see" in client.stdout.readline().lower()
            assert client.stdout.read(len("answer: I")) == "answer: I"  # … have no picture
            before_s = loud_s(played)
            while loud_s(played) < before_s + 0.2:
                time.sleep(0.05)
            client.send_signal(signal.SIGINT)
            _, trouble = client.communicate(timeout=PATIENCE_S)
        finally:
            client.kill()
    assert (client.returncode, trouble) == (0, "")
    assert answer.startswith("1, 2, 3")


def loud_s(played: Path) -> float:
    """Seconds of what a loudspeaker played that are not silent."""
    sound = np.fromfile(played, "<i2") if played.exists() else np.zeros(0, np.int16)
    pieces = np.abs(sound[: len(sound) // 480 * 480].reshape(-1, 480)).max(axis=1, initial=0)
    return float((pieces > 1000).sum() * 0.02)


def test_the_loudspeaker_says_what_was_heard_of_an_answer_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(STAND_IN)
    loudspeaker = runpy.run_path(str(EXAMPLES / "microphone.py"))["Loudspeaker"]()
    loudspeaker.add(AudioDelta("response", "item", b"\1\0" * 24_000))
    out = bytearray(960)
    for _ in range(15):
        loudspeaker.play(out, 480, None, None)
    assert any(out)
    assert loudspeaker.stop() == {"item_id": "item", "content_index": 0, "audio_end_ms": 300}
    loudspeaker.play(out, 480, None, None)
    assert not any(out), "it is silent at once"
    assert loudspeaker.stop() is None, "nothing is cut where all was heard"


def filmed(path: Path, rate: int, first_s: int = 0) -> str:
    """Ten frames of a red square, as a video file whose first frame is that of a time."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        picture = np.full((240, 320, 3), 255, np.uint8)
        picture[60:180, 100:220] = (220, 20, 20)
        for number in range(10):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = first_s * rate + number, Fraction(1, rate)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return str(path)


async def test_a_video_file_is_watched_at_its_own_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder is done with it in a moment, of which only the first picture would be shown; it begins at an hour."""
    spec = spec_from_file_location("camera", EXAMPLES / "camera.py")
    assert spec is not None
    assert spec.loader is not None
    camera = module_from_spec(spec)
    spec.loader.exec_module(camera)
    monkeypatch.setattr(camera, "EVERY_S", 0.1)
    shown_s: list[float] = []

    class Server:
        async def send(self, kind: str, image_url: str) -> None:
            assert (kind, image_url[:23]) == ("parley.camera.frame", "data:image/jpeg;base64,")
            shown_s.append(asyncio.get_running_loop().time())

    async with asyncio.timeout(30):
        await camera.watch(Server(), filmed(tmp_path / "video.mp4", rate=5, first_s=3600))
    assert len(shown_s) >= 3
    assert shown_s[-1] - shown_s[0] >= 0.2


def test_a_camera_is_watched_while_the_question_is_spoken(http: str, tmp_path: Path) -> None:
    question = written(tmp_path / "question.wav", spoken(http, "What do you see?"))
    camera = ("--camera", filmed(tmp_path / "camera.mp4", rate=5))
    assert "red square" in ran(python("camera.py", str(question), *camera, "--url", http), tmp_path).lower()


def failed(command: list[str], folder: Path) -> str:
    """Run an example that must fail, and return its message."""
    result = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 1
    return result.stderr


@pytest.mark.parametrize(
    "command",
    [
        python("raw_websocket.py", "--url", "ws://127.0.0.1:9"),
        python("raw_websocket.py", "--audio", "none.wav"),
        python("tool_calling.py", "--url", "http://127.0.0.1:9"),
        python("microphone.py", "--url", "http://127.0.0.1:9"),
        python("camera.py", "none.wav"),
    ],
    ids=lambda command: " ".join([Path(command[3]).name, *command[4:]]),
)
def test_an_example_that_cannot_run_says_so_in_one_sentence(command: list[str], tmp_path: Path) -> None:
    message = failed(command, tmp_path)
    assert "Traceback" not in message
    assert message.count("\n") == 1
    assert "127.0.0.1:9" in message or "none.wav" in message


def test_a_microphone_without_portaudio_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sounddevice.py").write_text('raise OSError("PortAudio library not found")')
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    command = python("microphone.py")
    result = subprocess.run(
        command, cwd=tmp_path, env=environment(PYTHONPATH=paths), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert result.returncode == 1
    assert "apt install libportaudio2" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.node
def test_node_without_a_websocket_and_without_a_server_says_so_in_one_sentence(tmp_path: Path) -> None:
    client = str(EXAMPLES / "node_client.mjs")
    options = ["--no-warnings", "--no-experimental-websocket"]
    assert "has no WebSocket: use Node 22" in failed(["node", *options, client], tmp_path)
    options[1] = "--experimental-websocket"
    assert "make serve" in failed(["node", *options, client, "Hello.", "ws://127.0.0.1:9"], tmp_path)
