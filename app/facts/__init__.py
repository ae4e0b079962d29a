"""Memory across sessions: named facts in a SQLite file, which the operator enables with ``server.memory``.

Facts belong to an API key, and within it to a user that the client names. Independent of sessions and routes.
"""

from __future__ import annotations

from app.facts.file import Fact
from app.facts.session_memory import MemoryAccess, SessionMemory, no_memory
from app.facts.store import FactStore

__all__ = ["Fact", "FactStore", "MemoryAccess", "SessionMemory", "no_memory"]
