"""LiteLLM's proxy, as its users start it, between OpenAI's Python client and this server.

The pins are those of ``litellm[proxy]`` without polars, which is large, and without what a proxy that has no database
doesn't load and is not under a permissive licence: litellm-enterprise, and litellm-proxy-extras for its psycopg.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import secrets
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import part
from openai_python import client as openai_python

KEY = f"sk-{secrets.token_hex(32)}"
"""The proxy starts with no key that others may know."""

OFFLINE = {
    "LITELLM_MASTER_KEY": KEY,
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it downloads prices when it starts
}

CONFIG = """\
model_list:
  - model_name: gpt-realtime
    litellm_params:
      model: openai/gpt-realtime
      api_base: http://{base}/v1
      api_key: none
    model_info:
      mode: realtime
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
"""


async def play(task: part.Task) -> part.Report:
    """The proxy itself asks for an answer at each transcript: a server that did so, too, would answer twice."""
    async with proxy(task.base) as base, asyncio.timeout(part.TIMEOUT_S):
        return await openai_python.play(dataclasses.replace(task, base=base), KEY, create_response=False)


@asynccontextmanager
async def proxy(server: str) -> AsyncGenerator[str]:
    """The proxy in front of this server, as ``host:port``."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG.format(base=server))
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
        process = await asyncio.create_subprocess_exec(
            *command, "--port", "0", env={**os.environ, **OFFLINE}, cwd=folder,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            base = await running_at(process.stdout)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(process.stdout.read())  # a full pipe would stop it
                yield base
                process.terminate()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def running_at(output: asyncio.StreamReader) -> str:
    """Where uvicorn says that it is."""
    said: list[str] = []
    async for line in output:
        said.append(line.decode())
        if found := re.search(r"running on http://([\d.]+:\d+)", said[-1]):
            return found[1]
    raise AssertionError("the proxy did not start: " + "".join(said[-10:]))


part.run(play, within_s=part.TIMEOUT_S + 60)
