"""A call with a duplex model: sound both ways all the time, and events of the model's speech."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.app.rig import Running, eventually, silence, tone
from tests.app.transports.webrtc.caller import calling


@pytest.mark.slow
async def test_the_model_greets_and_answers_what_it_hears(duplex: Running) -> None:
    async with calling(duplex, session={"type": "realtime", "instructions": "say: good day"}) as call:
        await call.until("response.done")
        call.mouth.say(tone(0.3))
        call.mouth.say(silence(0.1))
        done = await call.until("response.done")
        heard = done["response"]["output"][0]["content"][0]["transcript"]
        assert heard.startswith("I heard")  # where the machine is late, the tone has gaps, and counts as several words
        await call.until("output_audio_buffer.stopped")
        await call.sound()
        buffer = [kind for kind in call.types() if kind.startswith("output_audio_buffer")]
        assert buffer == ["output_audio_buffer.started", "output_audio_buffer.stopped"] * 2
        assert "error" not in call.types()
        assert "input_audio_buffer.speech_started" not in call.types()
    await duplex.empty()


async def test_sound_comes_all_the_time(duplex: Running) -> None:
    """Also while the model is silent: the caller's player neither stops nor starts anew."""
    async with calling(duplex, session={"type": "realtime", "instructions": ""}) as call:
        await eventually(lambda: len(call.heard) > 40)
        assert not call.of("response.created")
        ticks = [frame.ticks for frame in call.heard]
        assert max(after - before for before, after in pairwise(ticks)) <= 48_000
    await duplex.empty()
