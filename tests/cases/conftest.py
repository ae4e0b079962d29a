"""Fixtures of the application's own tests, for the cases that need a running server."""

from __future__ import annotations

from tests.app.conftest import client, serve_with, server
from tests.app.http.conftest import openai, shared
from tests.app.transports.webrtc.conftest import _loopback

__all__ = ["_loopback", "client", "openai", "serve_with", "server", "shared"]
