"""Sessions with a duplex model are recorded like others. They can't be replayed, since the model follows a clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.recording.file import read
from app.recording.lines import audio_path
from engine import ConfigError
from tests.app.recording.recorded import only, replayed
from tests.app.rig import running, silence, talking
from tests.app.scripted import duplex_spec


async def test_a_duplex_session_is_recorded_and_not_replayed(tmp_path: Path) -> None:
    async with running(duplex_spec(recordings=str(tmp_path))) as server, talking(server, "?record=true") as client:
        await client.configure(instructions="say: good day")
        await client.append(silence(0.02))
        await client.until("response.done")
    path = only(tmp_path)
    assert "good day" in "".join(event.text for event in read(path).server)
    assert audio_path(path, "in").stat().st_size > 0.4 * 48_000
    with pytest.raises(ConfigError, match="duplex"):
        await replayed(path)
