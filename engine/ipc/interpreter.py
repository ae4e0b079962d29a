"""Whether the Python interpreter of another environment can run a worker: asked before one is started there.

Knows no worker. Whether that environment has our own version of Parley its worker tells by itself.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from engine.deployment.installation import worker_install_command
from engine.errors import ConfigError
from engine.ipc import spawn

NEEDED = ("msgspec", "numpy", "pyyaml")
"""The packages that a worker itself imports, by their names on PyPI. Those that its stages import come on top."""

OLDEST = (3, 11)
ANSWER_S = 60.0  # a cold disk, a busy machine
MOST_BYTES = 1 << 20  # it may be a program that never stops talking

_QUESTION = r"""
import sys
sys.path = [path for path in sys.path if path]
print("\nparley: python %d.%d" % sys.version_info[:2])
sys.stdout.flush()
import parley_voice.engine.worker.__main__, parley_voice.engine.ipc.protocol_version
print("\nparley: ready")
"""


async def check(python: str) -> None:
    """Raises ConfigError, one sentence that says what is wrong with ``python``, a path, and what to do about it."""
    said = await _asked(python)
    version = re.search(r"^parley: python (\d+)\.(\d+)$", said, re.MULTILINE)
    if version is None:
        raise ConfigError(f"workers[].python: {python} is no Python interpreter")
    if tuple(map(int, version.groups())) < OLDEST:
        raise ConfigError(
            f"workers[].python: {python} is Python {'.'.join(version.groups())}; a worker needs "
            f"{'.'.join(map(str, OLDEST))} or a newer one"
        )
    if not re.search(r"^parley: ready$", said, re.MULTILINE):
        raise ConfigError(
            f"workers[].python: {python} cannot run a worker: {_reason(said)}. Install what a worker "
            f"imports: {worker_install_command(python, NEEDED)}"
        )


async def _asked(python: str) -> str:
    """Return the interpreter's answer to the question, from either of its outputs."""
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-c",
            _QUESTION,
            env=spawn.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise ConfigError(f"workers[].python: {python} cannot be started: {error.strerror}") from None
    assert process.stdout is not None
    said = b""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while len(said) < MOST_BYTES and (data := await process.stdout.read(MOST_BYTES)):
                    said += data
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
    return said.decode("utf-8", "replace")


def _reason(said: str) -> str:
    """The error that the interpreter ended with, without the name of its type."""
    last = said.strip().rpartition("\n")[2][:200].rstrip(".")
    return "it did not answer" if last.startswith("parley: ") else last.partition(": ")[2] or last
