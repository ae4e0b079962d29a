"""The command line as its user meets it: what comes out, where, and how mistakes are told."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile
import yaml
from typer.testing import CliRunner, Result

from app.cli import cli
from app.commands import doctor, sink, terminal
from engine import SPEAKER_RATE_HZ, Engine
from tests.app.rig import Running, keys_file


@pytest.fixture(autouse=True)
def silent_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No loudspeaker, whatever this machine has; files go to a folder of their own."""
    monkeypatch.setattr(sink, "device_available", lambda: "there is none")
    monkeypatch.chdir(tmp_path)


def parley(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, arguments, input=typed, catch_exceptions=False)


@contextmanager
def process(*arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which a test that fails does not leave behind."""
    command = [sys.executable, "-m", "app", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.terminate()


def test_version() -> None:
    assert parley("--version").stdout.startswith("parley 0.")


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "say",
        "ask",
        "chat",
        "replay",
        "simulate",
        "voices",
        "setup",
        "doctor",
        "bench",
        "worker",
        "workers",
        "scale",
        "restart",
    ],
)
def test_every_help_teaches_by_example(command: str) -> None:
    result = parley(command, "--help")
    assert result.exit_code == 0
    assert f"parley {command}" in result.stdout.partition("Example:")[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("say", "hi", "-c", "scrpt"), "unknown configuration 'scrpt' (did you mean 'script'?)"),
        (("say", "hi", "-c", "none.yaml"), "none.yaml: cannot read the configuration: No such file or directory"),
        (("serve", "."), "cannot read the configuration: Is a directory"),
        (("ask", "--audio", "."), "cannot read .: Is a directory"),
        (("workers", "--key-file", "keys", "--url", "foo"), "'foo' is not a valid server URL"),
        (("say", "hi", "-c", "script", "--model", "scrip"), "there is no 'scrip' (did you mean 'script'?)"),
        (("say", "hi", "-c", "script", "--voice", "tune"), "script has no voice 'tune' (did you mean 'tone'?)"),
        (("say", " ", "-c", "script"), "the text to speak is empty"),
        (
            ("say", "hi", "-c", "script", "--guidance", "2"),
            "guidance: this model supports no guidance; set it to 1, not 2",
        ),
        (("say", "hi", "-c", "nano", "--voice", "slx"), "nano has no voice 'slx' (did you mean 'slt'?)"),
        (("say", "hi", "-o", "no/such/x.wav"), "cannot write no/such/x.wav: no such folder: no/such"),
        (("say", "hi", "-o", "hi.mp4"), "must end with one of .wav, .mp3, .flac, .ogg, .opus, .aac"),
        (("ask", "--text", "hi", "--dump", "no/x.npz"), "cannot write no/x.npz: no such folder: no"),
        (("ask", "--text", "hi", "--dump", "x.npy"), "must end with one of .npz"),
        (("chat", "-o", "."), "it is a folder"),
        (("say", "hi", "--url", "127.0.0.1:8000"), "use one like http://127.0.0.1:8000"),
        (("ask", "--text", "hi", "--url", "http://127.0.0.1:9"), "no server at http://127.0.0.1:9"),
        (("chat", "--url", "http://127.0.0.1:9", "--key-file", "none"), "--key-file: cannot read the key file none"),
        (("ask", "-c", "script"), "no question: use --text, --audio or --image"),
        (("ask", "-c", "script", "--audio", "no.wav"), "cannot read no.wav: No such file or directory"),
        (("ask", "-c", "script", "--text", "fail"), "the script says that this answer fails"),
        (("bench", "--url", "ws://127.0.0.1:9", "-c", "script"), "no session at ws://127.0.0.1:9"),
    ],
)
def test_a_mistake_is_one_sentence_on_stderr(arguments: tuple[str, ...], sentence: str) -> None:
    keys_file(Path(), "sk-of-somebody-0123")
    result = parley(*arguments)
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("sya", "hi"), "Did you mean 'say'?"),
        (("say", "hi", "--voce", "x"), "--voice"),
        (("say",), "text"),
        (("say", "hi", "--url", "http://x", "-c", "script"), "--config"),
        (("say", "hi", "--url", "http://x", "--guidance", "2"), "--guidance"),
        (("ask", "--url", "http://x", "--dump", "a.npz"), "--dump"),
        (("say", "hi", "--key-file", "x"), "--url"),
    ],
)
def test_a_wrong_use_of_the_command_line_is_exit_code_2(arguments: tuple[str, ...], hint: str) -> None:
    result = parley(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr


@pytest.mark.parametrize("mistake", [("--voice", "slx"), ("-o", "no/x.wav"), ("-o", "x.txt")])
def test_a_wrong_voice_or_file_is_told_before_an_engine_starts(
    mistake: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(Engine, "__init__", started)
    assert parley("say", "hi", *mistake).exit_code == 1
    assert parley("ask", "--text", "hi", *mistake).exit_code == 1
    for name in ("--audio", "--image"):
        assert parley("ask", "--text", "hi", name, "no/such.wav").exit_code == 1
    with pytest.raises(AssertionError, match="an engine was started"):
        parley("say", "hi", "-o", "x.wav")


async def test_say_ask_and_chat_use_a_running_server(server: Running, tmp_path: Path) -> None:
    url = ("--url", server.http)
    said = await asyncio.to_thread(parley, "say", "one two", *url, "-o", "said.flac")
    assert said.exit_code == 0, said.stderr
    assert soundfile.info(tmp_path / "said.flac").frames == 2 * 2 * SPEAKER_RATE_HZ // 25
    assert "first audio after" in said.stderr
    recording = ("--audio", "said.flac", "--voice", "tone")
    asked = await asyncio.to_thread(parley, "ask", *recording, *url, "-o", "asked.mp3")
    assert asked.stdout == "I heard 0.2 seconds.\n"
    assert "heard: 0.2 seconds" in asked.stderr
    assert soundfile.info(tmp_path / "asked.mp3").format == "MP3"
    chatted = await asyncio.to_thread(parley, "chat", *url, "-o", "chat.wav", typed="say: yes\nfail\nsaid\n")
    assert chatted.stdout == "yes\nthis is \nI said: yes this is\n"
    assert chatted.stderr.count("first audio after") == 2


async def test_voices_are_listed_of_a_configuration_and_of_a_running_server(server: Running) -> None:
    rows = [line.split() for line in parley("voices").stdout.splitlines()]
    assert rows[0] == ["id", "name", "language"]
    assert [row[0] for row in rows[1:]] == ["rms", "slt", "awb"]
    assert all(row[-1].startswith("en") for row in rows[1:])
    here = parley("voices", "-c", "script").stdout
    there = await asyncio.to_thread(parley, "voices", "--url", server.http)
    assert "tone" in here
    assert there.stdout == here


def test_damaged_media_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"RIFF\xff\xff\xff\xffWAVE")
    (tmp_path / "x.png").write_bytes(b"not a picture")
    assert (
        "cannot read x.wav: the file is damaged or cut off" in parley("ask", "-c", "script", "--audio", "x.wav").stderr
    )
    assert "neither a PNG nor a JPEG" in parley("ask", "-c", "script", "--image", "x.png").stderr


def test_say_writes_a_wav_and_the_ledger(tmp_path: Path) -> None:
    result = parley("say", "one two", "-c", "script", "-o", "out.wav")
    assert result.exit_code == 0, result.stderr
    wave, rate_hz = soundfile.read(tmp_path / "out.wav", dtype="float32")
    assert rate_hz == SPEAKER_RATE_HZ
    assert len(wave) == 2 * 6 * SPEAKER_RATE_HZ // 25  # two words of six frames
    assert np.abs(wave).max() > 0.1
    assert "first audio after" in result.stderr
    for term in ("ears", "thinker_prefill", "thinker_tokens", "talker", "code2wav", "packet"):
        assert f"{term} " in result.stderr


def test_say_without_a_place_for_its_sound_says_where_it_is(tmp_path: Path) -> None:
    result = parley("say", "-", "-c", "script", typed="from a pipe")
    assert (tmp_path / "say.wav").exists()
    assert "to say.wav" in result.stderr


def test_say_streams_raw_samples_and_nothing_else_to_stdout() -> None:
    with process("say", "one two", "-c", "script", "-o", "-") as speaking:
        out, _ = speaking.communicate(timeout=60)
        assert speaking.returncode == 0
        samples = np.frombuffer(out, "<i2")
        assert len(samples) == 2 * 6 * SPEAKER_RATE_HZ // 25
        assert np.abs(samples).max() > 3000


def test_a_player_that_has_enough_ends_say_quietly() -> None:
    with process("say", "word " * 400, "-c", "script", "-o", "-") as speaking:
        assert speaking.stdout is not None
        assert speaking.stderr is not None
        speaking.stdout.read(1000)
        speaking.stdout.close()
        assert speaking.wait(60) == 0
        assert b"Traceback" not in speaking.stderr.read()


def test_ask_prints_the_text_and_dumps_what_was_made(tmp_path: Path) -> None:
    result = parley("ask", "-c", "script", "--text", "say: one two", "-o", "a.wav", "--dump", "a.npz")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "one two\n"
    with np.load(tmp_path / "a.npz") as dump:
        assert dump["text_ids"].shape == (2,)
        assert dump["codes"].shape == (12, 2)
        assert dump["codes"].dtype == np.int16
        assert dump["pcm"].dtype == np.float32
        assert len(dump["pcm"]) == 12 * SPEAKER_RATE_HZ // 25
        assert dump["prompt_ids"].dtype == np.int64
        assert {"thinker.out", "audio"} <= set(dump["mark_names"])
        assert dump["ledger_ms"].sum() > 0
        wave, _ = soundfile.read(tmp_path / "a.wav", dtype="float32")
        assert np.abs(wave - dump["pcm"]).max() < 1e-4


def test_ask_with_a_recording_says_what_was_heard(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "q.wav", np.zeros((24_000, 2), np.float32), 48_000)
    result = parley("ask", "-c", "script", "--audio", "q.wav", "-o", "a.wav")
    assert "heard: 0.5 seconds" in result.stderr
    assert result.stdout == "I heard 0.5 seconds.\n"


def test_ask_keeps_to_its_limits(tmp_path: Path) -> None:
    few_words = parley("ask", "-c", "script", "--text", "long 9", "--max-text-tokens", "2")
    assert few_words.stdout == "word0 word1 \n"
    assert "cut off at its maximum length" in few_words.stderr
    short = parley("ask", "-c", "script", "--text", "long 9", "--max-seconds", "0.12", "--dump", "a.npz")
    assert "word8" not in short.stdout, "words that nobody hears are not written either"
    assert "cut off at its maximum length" in short.stderr
    with np.load(tmp_path / "a.npz") as dump:
        assert len(dump["codes"]) == 3


def test_a_limit_in_frames_is_said_in_seconds() -> None:
    result = parley("ask", "-c", "script", "--text", "long 9", "--max-frames", "3")
    assert result.exit_code == 2
    assert "--max-frames is --max-seconds now" in result.stderr


def test_chat_answers_each_line_and_survives_a_failure(tmp_path: Path) -> None:
    lines = "say: good morning\n/voice x\n/help\n\nfail\nsay: still here\n/quit\nsay: never\n"
    result = parley("chat", "-c", "script", "-o", "all.wav", typed=lines)
    assert result.exit_code == 0
    assert result.stdout == "good morning\nthis is \nstill here\n"
    assert "script has no voice 'x'" in result.stderr
    assert "the script says that this answer fails" in result.stderr
    assert result.stderr.count("first audio after") == 2
    assert soundfile.info(tmp_path / "all.wav").duration > 4 * 6 * 0.04


def test_chat_ends_with_its_input() -> None:
    assert parley("chat", "-c", "script", "-o", "a.wav", typed="").exit_code == 0


def test_an_interrupted_answer_ends_and_the_chat_goes_on() -> None:
    talking = subprocess.Popen(
        [sys.executable, "-m", "app", "chat", "-c", "script", "-o", "a.wav"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert talking.stdin is not None
    assert talking.stdout is not None
    talking.stdin.write("long 500000\n")
    talking.stdin.flush()
    assert talking.stdout.read(5) == "word0"
    os.kill(talking.pid, signal.SIGINT)
    out, _ = talking.communicate("say: yes\n", timeout=60)
    assert talking.returncode == 0
    assert out.endswith(" …\nyes\n")


def test_serve_says_its_address_and_ends_on_sigterm() -> None:
    with process("serve", "script", "--port", "0") as serving:
        assert serving.stderr is not None
        lines = iter(serving.stderr.readline, b"")
        ready = next(line for line in lines if b"Parley is ready" in line)
        assert b"http://127.0.0.1:" in ready
        serving.terminate()
        assert serving.wait(30) == 0


@pytest.mark.slow
def test_serve_takes_several_configurations(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("name: two\nmodel: script\nserver: {port: 1}\n")
    with process("serve", "script", "two.yaml", "--port", "0") as serving:
        assert serving.stderr is not None
        # without lines of the log, which begin with the date
        said = (line.decode() for line in iter(serving.stderr.readline, b"") if not line.startswith(b"20"))
        unused, ready, models = islice(said, 3)
        serving.terminate()
        assert serving.wait(30) == 0
    assert unused == "The `server` section of two has no effect: the server has that of script.\n"
    assert "Parley is ready" in ready
    assert models == "Models: script, two\n"


@pytest.mark.parametrize(
    "option", [("--voice", "slt"), ("--thinker", "ollama:m"), ("--print-config",), ("--weights", "w")]
)
def test_an_option_that_changes_a_configuration_is_refused_beside_several(option: tuple[str, ...]) -> None:
    result = parley("serve", "script", "nano", *option)
    assert result.exit_code == 2
    assert "only for one configuration" in " ".join(result.stderr.replace("│", " ").split())


def test_two_configurations_of_one_name_are_one_sentence() -> None:
    result = parley("serve", "script", "script", "--port", "0")
    assert result.exit_code == 1
    assert "two configurations are called 'script'" in result.stderr


def test_what_is_said_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A fingerprint may hold ":cd:", which some would print as a picture of a disc; a user may say "[bold]"."""
    for say in (terminal.say, terminal.whisper, terminal.fail):
        say("48:CD:6f:cd:ab [bold] :smile:")
        assert "48:CD:6f:cd:ab [bold] :smile:" in capsys.readouterr().err


def test_serve_signs_a_certificate_for_itself_and_says_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with process("serve", "script", "--port", "0", "--https", "auto") as serving:
        assert serving.stderr is not None
        lines = iter(serving.stderr.readline, b"")
        address = next(line for line in lines if b"Parley is ready" in line).decode().split(" at ")[1].split()[0]
        assert b"fingerprint" in next(lines)
        trusting = ssl.create_default_context(cafile=str(tmp_path / ".local" / "state" / "parley" / "https.pem"))
        with urlopen(f"{address}/health", timeout=20, context=trusting) as health:
            assert health.status == 200
        said = ssl.get_server_certificate(("127.0.0.1", int(address.rpartition(":")[2])))
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(said)).hexdigest()
        assert next(lines).decode().strip().replace(":", "").lower() == digest
        serving.terminate()
        serving.communicate(timeout=30)
        assert serving.returncode == 0


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process("serve", "script", "--port", str(port)) as serving:
            _, err = serving.communicate(timeout=60)
    assert serving.returncode == 1
    assert f"{port} is in use" in err.decode()
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "config", ["modle: script\n", "model: script\nworkers: [{stages: [ears]}]\nserver: {prot: 1}\n"]
)
def test_a_wrong_key_in_the_configuration_names_the_nearest(config: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(config)
    result = parley("serve", "x.yaml")
    assert result.exit_code == 1
    assert "did you mean" in result.stderr


def test_the_doctor_finds_a_taken_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.doctor_server.ASK_S", 0.1)  # what listens there never answers
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = parley("doctor", "-c", "script", "--port", port)
    assert result.exit_code == 1
    assert f"fail port: 127.0.0.1:{port} cannot be used" in result.stderr
    assert "ok   model: script loads in" in result.stderr


def test_the_doctor_looks_at_the_address_that_the_server_will_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "model", without_model)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    Path("x.yaml").write_text(
        f"model: script\nworkers: [{{stages: [ears]}}]\nserver: {{host: localhost, port: {port}}}\n"
    )
    assert f"ok   port: localhost:{port} is free" in parley("doctor", "-c", "x.yaml").stderr
    said = parley("doctor", "-c", "x.yaml", "--host", "0.0.0.0").stderr
    assert f"ok   port: 0.0.0.0:{port} is free" in said
    assert "warn keys: anyone who can reach this server may use it" in said
    assert "warn https: off" in said


async def without_model(_: object) -> list[doctor.Finding]:
    return []


def test_the_configuration_that_is_printed_has_the_flags_of_the_server() -> None:
    flags = ["--host", "0.0.0.0", "--port", "8080", "--https", "mine.pem", "--https-key", "mine.key"]
    printed = parley("serve", "script", *flags, "--print-config").stdout
    assert yaml.safe_load(printed)["server"] == {
        "host": "0.0.0.0", "port": 8080, "https": "mine.pem", "https_key": "mine.key",
    }  # fmt: skip


def test_a_configuration_that_no_server_would_take_is_not_printed() -> None:
    Path("x.yaml").write_text("model: script\nworkers: [{stages: [ears]}]\nserver: {hosts: localhost}\n")
    result = parley("serve", "x.yaml", "--print-config")
    assert result.exit_code == 1
    assert result.stderr.strip() == "error: server.hosts: unknown key (did you mean 'host'?)"
    assert result.stdout == ""


async def test_the_doctor_knows_a_parley_server_that_holds_the_port(server: Running) -> None:
    result = await asyncio.to_thread(parley, "doctor", "-c", "script", "--port", str(server.port))
    assert result.exit_code == 0, result.stderr
    assert f"runs at {server.http}: ready, with script" in result.stderr
    for subject in ("UDP: datagrams reach", "https: off", "keys: no keys required", "ears: script understands"):
        assert f"ok   {subject}" in result.stderr


def test_the_doctor_finds_missing_weights() -> None:
    result = parley("doctor", "-c", "bad.yaml")
    assert result.exit_code == 1
    Path("bad.yaml").write_text("model: script\nworkers: [{stages: [mouth]}]\n")
    result = parley("doctor", "-c", "bad.yaml", "--port", "0")
    assert result.exit_code == 1
    assert "there is no stage 'mouth'; script has ears, thinker, talker, code2wav" in result.stderr
    assert "git checkout" not in result.stderr, "the weights are not at fault"


def test_the_doctor_says_how_a_model_that_is_not_here_gets_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    result = parley("doctor", "--thinker", "qwen3-4b", "--port", "0")
    assert result.exit_code == 1
    assert "qwen3-4b is not on this machine; `parley pull qwen3-4b` downloads it" in result.stderr
    assert "git checkout" not in result.stderr


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (doctor.python((3, 10)), "fail"),
        (doctor.python((3, 13)), "ok"),
        (doctor.python((3, 14)), "warn"),
        (doctor.python((3, 15)), "fail"),
        (doctor.processors(1, 0.0), "warn"),
        (doctor.processors(2, 5.0), "warn"),
        (doctor.processors(2, 0.5), "ok"),
        (doctor.memory(10**8), "warn"),
        (doctor.memory(10**10), "ok"),
        (doctor.open_files(256), "warn"),
        (doctor.open_files(None), "ok"),
        (doctor.speaker("there is none"), "warn"),
        (doctor.speaker(None), "ok"),
        (doctor.page(Path("no/index.html")), "warn"),
    ],
)
def test_findings_name_the_next_step_unless_all_is_well(found: doctor.Finding, level: str) -> None:
    assert found.level == level
    assert bool(found.step) == (level != "ok")


def test_the_loudspeaker_gets_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake sounddevice: what is written to it, and that it is drained before it is closed."""
    calls: list[tuple[str, int]] = []

    class Stream:
        def __init__(self, samplerate: int, channels: int, dtype: str) -> None:
            assert (samplerate, channels, dtype) == (SPEAKER_RATE_HZ, 1, "int16")

        def start(self) -> None:
            calls.append(("start", 0))

        def write(self, data: bytes) -> None:
            calls.append(("write", len(data)))

        def stop(self) -> None:
            calls.append(("stop", 0))

        def close(self) -> None:
            calls.append(("close", 0))

    class Fake:
        RawOutputStream = Stream
        PortAudioError = RuntimeError

    monkeypatch.setitem(sys.modules, "sounddevice", Fake)
    monkeypatch.setattr(sink, "device_available", lambda: None)
    result = parley("say", "one", "-c", "script")
    assert "to the loudspeaker" in result.stderr
    assert calls[0] == ("start", 0)
    assert sum(size for name, size in calls if name == "write") == 2 * 6 * SPEAKER_RATE_HZ // 25
    assert calls[-2:] == [("stop", 0), ("close", 0)]


def test_say_writes_samples_to_a_pipe() -> None:
    with process("say", "word " * 100, "-c", "script", "-o", "-") as speaking:
        sound, _ = speaking.communicate(timeout=60)
        assert len(sound) == 2 * 100 * 6 * SPEAKER_RATE_HZ // 25
        assert speaking.returncode == 0
