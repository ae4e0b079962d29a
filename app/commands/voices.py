"""`parley voices`: which voices a deployment's model has, or that of a running server. Starts no engine."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from app.commands.server import Address, Server, ServerError
from app.commands.source import Target
from engine import Voice, describe
from engine.loop import run


def voices(target: Target) -> None:
    """Print a line for each: its id, its name, its language. Raises EngineError."""
    found = run(_asked(target)) if isinstance(target, Address) else describe(target).voices
    table = Table("id", "name", "language", box=None)
    for voice in found:
        table.add_row(voice.id, voice.name, voice.language or "any")
    Console(emoji=False).print(table if found else "The model has no voices to choose from.")


async def _asked(address: Address) -> Sequence[Voice]:
    async with Server(address) as server:
        told = await server.get("/v1/audio/voices")
    try:
        return [Voice(one["id"], one["name"], one["language"]) for one in told["voices"]]
    except (LookupError, TypeError):
        raise ServerError(f"{address.url} does not list its voices as a Parley server does") from None
