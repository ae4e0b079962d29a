"""The calls of a server: each is a task of one group, from its offer to its end. Knows no route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from app.media import MediaError
from app.realtime.ids import new_id
from app.realtime.trouble import Refusal
from app.service import Closed, Service
from app.telemetry import log, log_failure
from app.transports.webrtc.call import Call


class Calls:
    """``open`` before the first call; leaving it ends those that are left."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._calls: dict[str, Call] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Take calls while the block lasts."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                yield
            finally:
                for call in self._calls.values():
                    call.hang_up("the server is gone")

    async def begin(self, offer: str, start: dict[str, Any] | None, model: str = "") -> tuple[Call, str]:
        """A call for an SDP offer, and the answer to it. Raises Refusal, and Closed where there is no room."""
        if self._tasks is None:
            raise Closed("starting", "The server takes no calls yet.")
        limit = self._service.settings.limits.calls
        if len(self._calls) >= limit:
            raise Closed("server_full", f"All {limit} calls are taken; try again later.")
        id, answer = new_id("rtc"), asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._serve(id, (offer, start, model), answer), name=f"call:{id}")
        return await answer

    def find(self, id: str) -> Call | None:
        """The call of this id, while it lasts."""
        return self._calls.get(id)

    async def _serve(self, id: str, begin: tuple[str, Any, str], answer: asyncio.Future[tuple[Call, str]]) -> None:
        """The root of a call: what goes wrong before its answer is the caller's, all else stays here."""
        offer, start, model = begin
        try:
            with self._service.admit() as house:
                await self._run(Call(id, self._service, house, start, model), offer, answer)
        except (Refusal, Closed, MediaError, TimeoutError) as error:
            if not answer.done():
                answer.set_exception(error)
        except Exception as error:  # noqa: BLE001 - a bug in one call must not end the others, and is logged with its place
            log_failure("call.bug", call=id)
            if not answer.done():
                answer.set_exception(error)

    async def _run(self, call: Call, offer: str, answer: asyncio.Future[tuple[Call, str]]) -> None:
        self._calls[call.id] = call
        try:
            sdp = await call.accept(offer)
            if answer.done():  # its client has left meanwhile
                return
            answer.set_result((call, sdp))
            log("call.opened", call=call.id)
            await call.run()
        finally:
            call.hang_up("it is over")
            del self._calls[call.id]
            await call.close()
