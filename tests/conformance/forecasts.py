"""An MCP server on loopback, as its users run one: the SDK's own, over streamable HTTP, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import uvicorn


@contextmanager
def forecasts() -> Generator[str]:
    """The address of a server that is there while the block lasts."""
    pytest.importorskip("mcp")
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("forecasts")

    @server.tool()
    def forecast(city: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """The weather of tomorrow in a city."""
        return f"sunny in {city}"

    listener = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app(json_response=True)
    serving = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listener]}, name="forecasts")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        serving.should_exit = True
        thread.join()
