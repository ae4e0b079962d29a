"""Helpers for asyncio: event loop, task groups, log handler."""
