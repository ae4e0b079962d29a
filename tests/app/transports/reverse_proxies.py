"""Real reverse proxies in front of a server: nginx and HAProxy, each with a configuration of its own."""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.app.rig import eventually

UPGRADE = """proxy_http_version 1.1; proxy_set_header Host $http_host;
proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;"""
"""What the page on deployment tells people to write: the header Host, and those of an upgrade."""

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  {servers}
}}
"""
SERVER = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{server}; {more} }} }}"

HAPROXY = """defaults
  mode http
  timeout connect 10s
  timeout client {idle_s}s
  timeout server {idle_s}s
  timeout tunnel {idle_s}s
frontend voice
  bind 127.0.0.1:{port}
  default_backend parley
backend parley
  server one 127.0.0.1:{server}
"""


@asynccontextmanager
async def nginx(folder: Path, server: int, more: str) -> AsyncGenerator[int]:
    """nginx before the server of a port, with ``more`` in its location. Yields nginx's own port."""
    port = free_port()
    async with nginx_of(folder, port, SERVER.format(port=port, server=server, more=more)):
        yield port


@asynccontextmanager
async def nginx_of(folder: Path, port: int, servers: str) -> AsyncGenerator[None]:
    """nginx with ``servers`` in its section ``http``, one of which listens at ``port``."""
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, servers=servers))
    async with _running(port, "nginx", "-e", str(folder / "errors"), "-c", str(file)):
        yield


@asynccontextmanager
async def haproxy(folder: Path, server: int, idle_s: int) -> AsyncGenerator[int]:
    """HAProxy, which cuts what is silent for ``idle_s`` seconds. Yields its port."""
    port, file = free_port(), folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, server=server, idle_s=idle_s))
    async with _running(port, "haproxy", "-db", "-q", "-f", str(file)):
        yield port


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@asynccontextmanager
async def _running(port: int, *command: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        await eventually(lambda: process.returncode is not None or _answers(port))
        assert process.returncode is None, f"{command[0]} has ended with {process.returncode}"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
