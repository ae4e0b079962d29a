"""Admission of sessions and of answers over HTTP: session slots, the admission queue, request slots and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge

from app.limits.admission_queue import AdmissionQueue, QueueFull, Waiter
from app.limits.http_slots import HttpSlotLimiter
from app.limits.memory_budget import MemoryReservation
from app.limits.principal import Principal
from app.limits.quotas import Kind, QuotaExceeded, Quotas
from app.refusal import Closed
from app.settings import Limits
from engine import Request


class AdmissionMetrics(Protocol):
    """The metrics that admission updates."""

    sessions: Gauge
    http_waiting: Gauge
    sessions_refused: Counter


class HasRoom(Protocol):
    """A context that reserves memory for its session or request."""

    @property
    def room(self) -> MemoryReservation: ...


Context = TypeVar("Context", bound=HasRoom)
MadeContext = TypeVar("MadeContext", bound=HasRoom, covariant=True)


class MakeContext(Protocol[MadeContext]):
    """Make the context of one session or request. Raises Closed while the engine cannot answer."""

    def __call__(
        self,
        caller: Principal | None = None,
        model: str | None = None,
        *,
        while_draining: bool = False,
        while_unavailable: bool = False,
    ) -> MadeContext: ...


class Admission(Generic[Context]):
    """Counts the open sessions and answers of one server, and decides whether another one may begin.

    ``slots`` returns, for each stage that a request to a model passes, how many requests like it the stage can run.
    """

    def __init__(
        self,
        limits: Limits,
        metrics: AdmissionMetrics,
        quotas: Quotas,
        context: MakeContext[Context],
        slots: Callable[[Request, str | None], Mapping[str, int]],
    ) -> None:
        self.quotas = quotas
        self.sessions = 0
        """Number of open sessions."""
        self.answers = 0
        """Number of answers over HTTP, including those that wait for slots."""
        self.http_slots = HttpSlotLimiter(limits.wait_s, limits.answers_share)
        self._limits = limits
        self._metrics = metrics
        self._context = context
        self._slots = slots
        self._queue = AdmissionQueue(limits.waiting)
        self._empty = asyncio.Event()
        metrics.http_waiting.set_function(lambda: self.http_slots.waiting)

    @property
    def full(self) -> bool:
        """Whether every session slot is taken or reserved for a client that has waited for it."""
        return self.sessions + self._queue.given >= self._limits.sessions

    @contextmanager
    def admit(
        self, caller: Principal | None = None, waiter: Waiter | None = None, model: str | None = None
    ) -> Generator[Context]:
        """Hold one session slot while the block lasts. A ``waiter`` takes the slot reserved for it. Raises Closed.

        ``model`` is the name that the client requests.
        """
        if waiter is not None:
            self._queue.leave(waiter)
        context = self._context(caller, model)
        if self.full:
            raise self._refused("server_full", f"All {self.sessions} sessions are taken; try again later.")
        with self.share("sessions", caller or Principal()):
            self._count_session(1)
            try:
                yield context
            finally:
                context.room.close()
                self._count_session(-1)
                self._call_next()
                self._left()

    @contextmanager
    def waiting(
        self, moved: Callable[[int], None], caller: Principal | None = None, model: str | None = None
    ) -> Generator[Waiter]:
        """Hold a place in the admission queue while the block lasts. ``moved`` receives each new position, from 1.

        Raises Closed.
        """
        self._context(model=model)
        with self.share("waiting", caller or Principal()):
            try:
                waiter = self._queue.join(moved)
            except QueueFull:
                message = (
                    f"All {self.sessions} sessions are taken, and {len(self._queue)} clients wait; try again later."
                )
                raise self._refused("server_full", message) from None
            try:
                yield waiter
            finally:
                self._queue.leave(waiter)
                self._call_next()

    @contextmanager
    def share(self, kind: Kind, caller: Principal) -> Generator[None]:
        """Count one place of this kind towards the caller's quota while the block lasts. Raises Closed."""
        with ExitStack() as held:
            try:
                held.enter_context(self.quotas.hold(kind, caller))
            except QuotaExceeded as taken:
                self._count_refusal(taken.code)
                raise
            yield

    @contextmanager
    def admit_answer(self) -> Generator[None]:
        """Count one answer over HTTP while the block lasts; a drain waits for it. Raises Closed."""
        self._context()
        if self.answers >= self._limits.answers:
            raise self._refused("server_full", f"{self.answers} HTTP answers are in progress; try again later.")
        self.answers += 1
        try:
            yield
        finally:
            self.answers -= 1
            self._left()

    @asynccontextmanager
    async def place(self, request: Request, patient: bool = False, model: str | None = None) -> AsyncGenerator[Context]:
        """Hold a slot at every stage that an admitted HTTP request passes, once HTTP may use one.

        A ``patient`` request waits as long as necessary, also while a stage is unavailable. Raises Closed; after
        ``wait_s`` where the request is not patient.
        """
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self.http_slots.hold(lambda: self._slots(request, model), patient))
            except TimeoutError:
                wait_s = self._limits.wait_s
                message = f"No slot for an HTTP answer became free within {wait_s:g} s; try again later."
                raise self._refused("server_full", message) from None
            yield self._context(model=model, while_draining=True, while_unavailable=patient)

    async def wait_until_empty(self) -> None:
        """Wait until no session is open and no answer is under way."""
        while self.sessions or self.answers:
            self._empty.clear()
            await self._empty.wait()

    def _count_session(self, change: int) -> None:
        self.sessions += change
        self._metrics.sessions.set(self.sessions)

    def _call_next(self) -> None:
        if not self.full:
            self._queue.call()

    def _left(self) -> None:
        if not self.sessions and not self.answers:
            self._empty.set()

    def _refused(self, code: str, message: str) -> Closed:
        self._count_refusal(code)
        return Closed(code, message)

    def _count_refusal(self, code: str) -> None:
        self._metrics.sessions_refused.labels(code).inc()
