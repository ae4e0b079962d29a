"""Check whether the Python interpreter of another environment can run a worker, before one is started there.

The check does not compare Parley's versions: the worker does that when it starts.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from engine.deployment.installation import worker_install_command
from engine.errors import ConfigError
from engine.ipc import spawn

NEEDED = ("msgspec", "numpy", "pyyaml")
"""The PyPI names of the packages that a worker itself imports. Its stages may need more."""

OLDEST = (3, 11)
ANSWER_S = 60.0  # a cold disk, a busy machine
MOST_BYTES = 1 << 20  # the path may be any program, even one that prints for ever

_QUESTION = r"""
import sys
sys.path = [path for path in sys.path if path]
print("\nparley: python %d.%d" % sys.version_info[:2])
sys.stdout.flush()
import parley_voice.engine.worker.__main__, parley_voice.engine.ipc.protocol_version
print("\nparley: ready")
"""


async def check(python: str) -> None:
    """Raise ConfigError, with the reason and the fix, if ``python`` (a path) cannot run a worker."""
    said = await _asked(python)
    version = re.search(r"^parley: python (\d+)\.(\d+)$", said, re.MULTILINE)
    if version is None:
        raise ConfigError(f"workers[].python: {python} is not a Python interpreter")
    if tuple(map(int, version.groups())) < OLDEST:
        raise ConfigError(
            f"workers[].python: {python} is Python {'.'.join(version.groups())}; workers need Python "
            f"{'.'.join(map(str, OLDEST))} or newer"
        )
    if not re.search(r"^parley: ready$", said, re.MULTILINE):
        raise ConfigError(
            f"workers[].python: {python} cannot run a worker: {_reason(said)}. Install what a worker "
            f"imports: {worker_install_command(python, NEEDED)}"
        )


async def _asked(python: str) -> str:
    """Return the interpreter's output, stdout and stderr together."""
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
    """Return the error message that the interpreter ended with, without its exception type."""
    last = said.strip().rpartition("\n")[2][:200].rstrip(".")
    return "it did not answer" if last.startswith("parley: ") else last.partition(": ")[2] or last
