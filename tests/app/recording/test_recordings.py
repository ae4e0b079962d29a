"""Sessions are recorded with the consent of both sides, and a damaged recording is one clear error."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.cli import cli
from app.recording.bad_recording import BadRecording
from app.recording.file import read
from app.settings import settings_of
from engine import ConfigError
from tests.app.recording.recorded import KEY, only, recorder, recording
from tests.app.rig import Running, script_spec, talking


def files(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def test_a_recording_needs_both_sides(server: Running, tmp_path: Path) -> None:
    async with recording(tmp_path, query="") as client:
        await client.ask("say: one")
    assert files(tmp_path) == []
    with pytest.raises(InvalidStatus) as refused:
        async with talking(server, "?record=true"):
            pass
    assert refused.value.response.status_code == 403
    assert b"server.recordings is not set" in (refused.value.response.body or b"")


async def test_nobody_else_reads_it_and_it_holds_no_key(tmp_path: Path) -> None:
    tool = {
        "type": "mcp",
        "server_label": "docs",
        "server_url": "https://docs.example.org/mcp",
        "authorization": "secret-1",
        "headers": {"X-Key": "secret-2"},
    }
    async with recording(tmp_path, query=f"?record=true&api_key={KEY}") as client:
        await client.send("session.update", session={"type": "realtime", "tools": [tool]})
        await client.send("session.update", session={"type": "realtime", "parley": {"resume": True}})
        await client.until("session.updated")
        token = (await client.until("session.updated"))["session"]["parley"]["resume_token"]
        await client.ask("say: one")
    assert len(files(tmp_path)) == 3
    for file in files(tmp_path):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for secret in (KEY, "secret-1", "secret-2", token, "Bearer"):
            assert secret.encode() not in file.read_bytes()


async def test_a_folder_that_is_missing_is_found_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.recordings: .*none' is no folder"):
        settings_of(script_spec(recordings=str(tmp_path / "none")).server)


async def test_a_recording_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    async with recorder(folder) as server:
        folder.rmdir()
        async with connect(server.ws + "?record=true") as socket:
            error = json.loads(await socket.recv())["error"]
            assert (error["code"], error["message"]) == ("recording_failed", "The server can't write the recording.")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


def _cut(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))


def _cut_line(path: Path) -> None:
    path.write_text(path.read_text()[:-40])


def _edited(path: Path) -> None:
    path.write_text(path.read_text().replace("say: one", "say: two"))


def _newer(path: Path) -> None:
    path.write_text(path.read_text().replace('"parley_session":1', '"parley_session":2', 1))


def _cut_audio(path: Path) -> None:
    audio = path.with_suffix(".in.wav")
    audio.write_bytes(audio.read_bytes()[:-100])


def _lost_audio(path: Path) -> None:
    path.with_suffix(".in.wav").unlink()


def _other(path: Path) -> None:
    path.write_text("hello\n")


def _as_the_page_writes(path: Path) -> list[Any]:
    """The lines of a recording as the page would download them."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    head = {name: lines[0][name] for name in ("parley_session", "began")}
    return [head, *(line for line in lines[1:] if line["direction"] in ("in", "out"))]


def _write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _page_that_heard(path: Path) -> None:
    lines = _as_the_page_writes(path)
    committed = {"type": "input_audio_buffer.committed", "item_id": "item_1", "previous_item_id": None}
    _write(path, [*lines, {**lines[-1], "direction": "in", "event": committed}])


def _page_without_beginning(path: Path) -> None:
    lines = _as_the_page_writes(path)
    _write(path, [lines[0], *lines[3:]])


def _page_cut(path: Path) -> None:
    _write(path, _as_the_page_writes(path))
    path.write_text(path.read_text()[:-40])


def _page_backwards(path: Path) -> None:
    lines = _as_the_page_writes(path)
    _write(path, [*lines, {**lines[-1], "at_ms": 0}])


def _invoked(*args: str) -> Result:
    return CliRunner().invoke(cli, args, catch_exceptions=False)


async def test_a_download_of_the_page_is_compared_by_its_conversation(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one two three")
        await client.ask("said")
    path = only(tmp_path)
    earlier = _as_the_page_writes(path)
    later = [{**line, "at_ms": line["at_ms"] + earlier[-1]["at_ms"]} for line in earlier[1:]]
    _write(path, [*earlier, *later])  # only the last session counts
    assert len(read(path).client) == 4
    run = await asyncio.to_thread(_invoked, "replay", str(path), "script")
    assert (run.exit_code, "The conversation is equal." in run.stderr + run.stdout) == (0, True), run.output
    _write(path, json.loads(json.dumps(earlier).replace("I said: one two three", "I said: four")))
    run = await asyncio.to_thread(_invoked, "replay", str(path), "script")
    assert (run.exit_code, "- answer: I said: four" in run.stderr + run.stdout) == (1, True), run.output
    run = await asyncio.to_thread(_invoked, "replay", str(path))
    assert "contains no configuration" in run.stderr


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "is cut"),
        (_cut_line, "is cut"),
        (_edited, "was changed after it was recorded"),
        (_newer, "has format version 2, and this Parley reads version 1"),
        (_cut_audio, "is cut, or was changed"),
        (_lost_audio, "cannot be read: No such file or directory"),
        (_other, "is no recording of a session"),
        (_page_that_heard, "lacks the user's speech, which the page does not keep"),
        (_page_without_beginning, "lacks the session's beginning"),
        (_page_cut, "is no line of a recording"),
        (_page_backwards, "is no line of a recording"),
    ],
)
async def test_a_damaged_recording_is_one_error(damage: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one")
    path = only(tmp_path)
    read(path)
    damage(path)
    with pytest.raises(BadRecording, match=reason):
        read(path)
    result = CliRunner().invoke(cli, ("replay", str(path)), catch_exceptions=False)
    assert result.exit_code == 2
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.output
