"""Clients of several servers behind one proxy: sessions that come back, calls, and client secrets."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from tests.app.rig import TIMEOUT_S, Client
from tests.app.transports.webrtc.caller import Caller
from tests.deploy.haproxy import KEY, Fronts

BEARER = {"authorization": f"Bearer {KEY}"}
SDP = {"content-type": "application/sdp"}


def client_of(two: Fronts) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=two.url(), headers=BEARER, timeout=TIMEOUT_S)


def owner(id: str) -> str:
    """The server that an id names."""
    return id.split("_")[1]


def socket(
    two: Fronts, query: str = "", key: str = KEY, header: str = "authorization", path: str = "/v1/realtime",
    **options: Any,
) -> connect:  # fmt: skip
    headers = {header: f"Bearer {key}" if header == "authorization" else key} if key else {}
    return connect(
        f"{two.url(scheme='ws')}{path}{query}",
        additional_headers=headers,
        max_size=None,
        max_queue=None,
        **options,
    )


class Held:
    """A client that may come back."""

    def __init__(self, two: Fronts) -> None:
        self._two = two
        self.token = ""

    async def open(self) -> None:
        self._client = Client(await socket(self._two))
        self._taken(await self._client.configure(parley={"resume": True}))

    def _taken(self, session: dict[str, Any]) -> None:
        self.token = session["parley"]["resume_token"]

    @property
    def server(self) -> str:
        return owner(self.token)

    async def works(self) -> None:
        await self._client.ask("say: still here", output_modalities=["text"])

    async def begins(self) -> None:
        """An answer of a minute is on its way."""
        await (await self._client.say("long 100")).send("response.create")
        await self._client.until("response.output_audio.delta")

    async def is_cut(self) -> None:
        """Wait until the connection is lost, to whatever was on its way."""
        with pytest.raises(ConnectionClosedError):
            await self._client.until("what nobody says")

    async def lose(self) -> None:
        """The connection breaks, without a goodbye."""
        self._client.socket.transport.abort()
        await self._client.socket.wait_closed()

    async def come_back(self) -> None:
        """Raises InvalidStatus where the server does not take it up again."""
        after = max(event.get("parley", {}).get("seq", 0) for event in self._client.events)
        self._client = Client(await socket(self._two, f"?resume={self.token}&after={after}"))
        self._taken((await self._client.until("session.updated"))["session"])

    async def close(self) -> None:
        await self._client.socket.close()


async def held(two: Fronts, stack: AsyncExitStack, count: int) -> list[Held]:
    clients = [Held(two) for _ in range(count)]
    for one in clients:
        await one.open()
        stack.push_async_callback(one.close)
    return clients


async def made(http: httpx.AsyncClient, route: str, name: str, **body: Any) -> str:
    answer = await http.post(f"/v1/{route}", json={"model": "script", **body} if route == "responses" else body)
    assert answer.status_code == 200, answer.text
    return answer.json()[name]


async def called(two: Fronts, caller: Caller, server: str) -> str:
    """The id of a call that this server takes."""
    async with client_of(two) as http, asyncio.timeout(TIMEOUT_S):
        while True:
            answer = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=SDP)
            id = answer.headers["location"].rpartition("/")[2]
            if owner(id) == server:
                return id
            assert (await http.post(f"/v1/realtime/calls/{id}/hangup")).status_code == 200


async def opens(two: Fronts, secret: str) -> None:
    """A secret opens a session as everybody sends it, as a browser and as Azure's clients do; then it is withdrawn."""
    in_browser = ["realtime", f"openai-insecure-api-key.{secret}"]
    ways = (
        socket(two, key=secret), socket(two, key="", subprotocols=in_browser), socket(two, key=secret, header="api-key")
    )  # fmt: skip
    for way in ways:
        async with way as one:
            assert json.loads(await one.recv())["type"] == "session.created"
    async with httpx.AsyncClient(base_url=two.url(), headers=BEARER) as http:
        gone = await http.post("/v1/realtime/client_secrets/withdraw", json={"value": secret})
    assert gone.json() == {"withdrawn": 1}
