"""`parley voices`: list the voices of a deployment's model, or of a running server. Starts no engine."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from app.commands.server import Address, RemoteServer
from app.commands.source import Target
from engine import Voice, describe
from engine.aio.event_loop import run


def voices(target: Target) -> None:
    """Print each voice's id, name and language. Raises EngineError."""
    found = run(_voices_of(target)) if isinstance(target, Address) else describe(target).voices
    table = Table("id", "name", "language", box=None)
    for voice in found:
        table.add_row(voice.id, voice.name, voice.language or "any")
    Console(emoji=False).print(table if found else "The model has no named voices.")


async def _voices_of(address: Address) -> tuple[Voice, ...]:
    async with RemoteServer(address) as server:
        return server.model.voices
