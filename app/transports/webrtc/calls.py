"""The WebRTC calls of a server. Each is a task of one group, from its offer to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from app.limits.principal import Principal
from app.media.audio import MediaError
from app.refusal import Closed, Refusal
from app.service import Service
from app.telemetry import log_failure
from app.transports.open_calls import OpenCalls
from app.transports.opening import Opening
from app.transports.resumable_session import ResumableSessions
from app.transports.webrtc.call import PeerCall
from app.transports.webrtc.peer_connection import PeerConnection

Answered = asyncio.Future[tuple[str, str]]
"""A call's id, and the answer to its client's offer."""

Work = Callable[[Answered], Coroutine[Any, Any, None]]
"""A function that answers an offer, and serves the connection that follows."""


class WebRtcCalls:
    """The WebRTC calls of one server. Enter ``open`` before the first call; leaving it ends the remaining calls."""

    def __init__(self, service: Service, open_calls: OpenCalls) -> None:
        self.server = service.settings.name
        """The server's name, which is part of its calls' ids."""
        self._service = service
        self._open_calls = open_calls
        self._calls: dict[str, PeerCall] = {}
        self._offers = 0  # whose clients have not connected yet
        self._sessions = ResumableSessions(self.server)
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Accept calls while the block lasts."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                yield
            finally:
                self._open_calls.hang_up("the server is gone")

    async def begin(self, offer: str, opening: Opening, id: str) -> tuple[str, str]:
        """Start a call with this id for an SDP offer. Returns the id and the answer. Raises Refusal, and Closed if
        there is no room.
        """
        limit = self._service.settings.limits.calls
        if len(self._calls) >= limit:
            raise Closed("server_full", f"All {limit} calls are taken; try again later.")
        return await self._rooted(id, lambda answer: self._serve(id, offer, answer, opening))

    async def resume(self, offer: str, token: str, after: str, caller: Principal) -> tuple[str, str]:
        """Start another connection for a call whose client resumes, like ``begin``. Also raises NoWayBack."""
        resumable, number = self._sessions.find(token, after, caller)
        call = next(one for one in self._calls.values() if one.connection.resumable is resumable)
        return await self._rooted(call.id, lambda answer: self._join(call, offer, answer, number, caller))

    async def _rooted(self, id: str, work: Work) -> tuple[str, str]:
        """Run ``work`` in the calls' task group, and return its answer."""
        if self._tasks is None:
            raise Closed("starting", "The server does not accept calls yet.")
        answer: Answered = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._root(id, answer, work), name=f"call:{id}")
        return await answer

    async def _root(self, id: str, answer: Answered, work: Work) -> None:
        """Run the call. An error before the answer is raised to the caller; later ones are logged."""
        try:
            await work(answer)
        except Exception as error:  # noqa: BLE001 - a bug in one call must not end the others, and is logged with its place
            if not isinstance(error, Refusal | Closed | MediaError | TimeoutError):
                log_failure("call.bug", call=id)
            if not answer.done():
                answer.set_exception(error)

    async def _serve(self, id: str, offer: str, answer: Answered, opening: Opening) -> None:
        maker = opening.caller
        with (
            self._service.admission.share("calls", maker),
            self._service.admission.admit(maker, model=opening.asked_model) as context,
            self._offer(maker) as connected,
        ):
            call = self._calls[id] = PeerCall(id, self._service, context, self._sessions, opening)
            call.peer.client = maker.address
            try:
                with self._open_calls.add(call):
                    if await _accepted(call.peer, connected, offer, id, answer):
                        await call.connection.run("call", call=id)
            finally:
                del self._calls[id]
                await call.peer.free()

    async def _join(self, call: PeerCall, offer: str, answer: Answered, after: int, caller: Principal) -> None:
        with self._offer(caller) as connected:
            peer = call.new_peer()
            peer.client = caller.address
            try:
                if await _accepted(peer, connected, offer, call.id, answer):
                    await call.connection.resumable.come_back(peer.channel, after)
            finally:
                await peer.free()

    @contextmanager
    def _offer(self, caller: Principal) -> Generator[Callable[[], None]]:
        """Hold a place for a client that is not connected yet. The yielded function releases it early.

        Raises Closed.
        """
        with ExitStack() as place:
            place.enter_context(self._service.admission.share("offers", caller))
            limit = self._service.settings.limits.offers
            if self._offers >= limit:
                raise Closed("server_full", f"{limit} calls are being connected; try again later.")
            self._offers += 1
            place.callback(self._follow)
            yield place.close

    def _follow(self) -> None:
        self._offers -= 1


async def _accepted(peer: PeerConnection, connected: Callable[[], None], offer: str, id: str, answer: Answered) -> bool:
    """Answer the offer. Returns False if its client has left meanwhile. Raises Refusal."""
    peer.connected = connected
    sdp = await peer.accept(offer)
    if not answer.done():
        answer.set_result((id, sdp))
        return True
    return False
