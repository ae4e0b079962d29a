"""The event loop that workers run on."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from engine.aio import event_loop

WITHOUT = (
    "import sys; sys.modules['uvloop'] = None; import asyncio; from engine.aio import event_loop; "
    "print(event_loop.run(asyncio.sleep(0, 7)))"
)


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_it_is_uvloop_s_and_its_result_is_the_coroutine_s() -> None:
    assert event_loop.run(kind()) == ("uvloop" if sys.platform != "win32" else "asyncio.windows_events")


def test_without_uvloop_it_is_asyncio_s_own() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "7"
