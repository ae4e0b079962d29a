"""A telephone call whose model uses tools of an MCP server: the result is spoken of, though no client asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from websockets.asyncio.client import connect

from tests.app import mcp_rig
from tests.app.rig import Client, LoudnessVad, eventually, keys_file, running, script_spec
from tests.app.transports.telephone.exchanges import TOKEN, URL, Reached, heard, twilio


async def test_a_result_of_the_servers_own_tool_is_spoken_of(tmp_path: Path) -> None:
    exchange = {"twilio_url": URL, "twilio_token_file": keys_file(tmp_path, TOKEN)}
    async with (
        mcp_rig.library() as library,
        running(script_spec(mcp=library.named(), telephone=exchange), vad=LoudnessVad) as server,
        twilio(Reached(server.port)) as phone,
    ):
        app: Any = server.server.config.app
        calls = app.state.open_calls
        await eventually(lambda: len(calls.ids) == 1)
        async with connect(f"{server.ws}?call_id={calls.ids[0]}") as socket:
            backend = Client(socket)
            await backend.until("session.created")
            await backend.configure(tools=[library.entry(parley={"speech": False})])
            await backend.until("mcp_list_tools.completed")
            await (await backend.say('tool shelf {"title": "Emma"}')).send("response.create")
            await backend.until("response.mcp_call.completed")
            await backend.until("output_audio_buffer.started")
            answer = (await backend.until("response.output_audio_transcript.done"))["transcript"]
            assert answer == "The tool says: Emma is on shelf nine"
            await eventually(lambda: len(heard(phone)) > 2400)
        await phone.hang_up()
        await server.empty()
