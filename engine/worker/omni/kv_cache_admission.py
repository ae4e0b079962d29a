"""Admission to a KV cache that requests share: which requests get room, wait, or lose their room.

Once its whole prompt is known, a request either gets all the room that it may ever use, before any further computation,
or waits in a queue. Room for prompts that are still being spoken can be taken away again. So a request that holds room
either needs no further room or can lose it, and no two requests can wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.worker.nn.slots import KvSlots
from engine.worker.stage_request import StageRequest

AHEAD = 128  # positions by which room grows while a user speaks: ten seconds of audio


class KvCacheAdmission:
    """The requests that hold room in a cache, and the queue of those that wait.

    ``give_up`` is called with a request that lost its room: its rows must be computed again. In a cache with a full
    context per slot, every request has room.
    """

    def __init__(self, cache: KvSlots, give_up: Callable[[StageRequest], None]) -> None:
        self._cache = cache
        self._give_up = give_up
        self._holders: dict[int, StageRequest] = {}
        self._settled: set[int] = set()
        self._queue: list[StageRequest] = []
        self._refused: dict[int, StageRequest] = {}  # by slot

    def has(self, req: StageRequest) -> bool:
        """Whether the request got the room it last requested.

        A request without room that does not wait calls ``take`` again in the next step.
        """
        return self._refused.get(req.slot) is not req

    def take(self, req: StageRequest, need: int, whole: bool) -> bool:
        """Reserve ``need`` positions for a request; if its prompt is ``whole``, these are all that it will use.

        Returns:
            Whether the request has the room. If not, it ``waits``, and this method must be called again.
        """
        if not self._cache.shared:
            return True
        self._sweep(req)
        if req.slot not in self._settled:
            req.waits = not self._find(req, need, whole)
            self._refused.pop(req.slot, None)
            if req.waits:
                self._refused[req.slot] = req
        return self.has(req)

    def _sweep(self, req: StageRequest) -> None:
        """Release the room of requests that have ended."""
        for slot, holder in [*self._holders.items()]:
            if holder.done or holder.closed or (slot == req.slot and holder is not req):
                self._release(slot)
        self._queue = [one for one in self._queue if not (one.done or one.closed)]
        self._refused = {slot: one for slot, one in self._refused.items() if not (one.done or one.closed)}

    def _find(self, req: StageRequest, need: int, whole: bool) -> bool:
        if whole and req not in self._queue:
            self._queue.append(req)
        if self._queue and self._queue[0] is not req:
            return False
        if not whole:
            need = min(-(-need // AHEAD) * AHEAD, self._cache.length)
            need = max(need, self._held(req.slot))
        ahead = [one for one in self._holders if one not in self._settled and one != req.slot] if whole else []
        short = need - self._held(req.slot) - self._cache.extents.free
        if short > sum(map(self._held, ahead)):
            return False
        while short > 0:
            short -= self._held(ahead[-1])
            loser = self._holders[ahead[-1]]  # the newest of those whose prompt is not whole
            self._release(ahead.pop())
            self._give_up(loser)
        self._cache.resize(req.slot, need)
        self._holders[req.slot] = req
        if whole:
            self._settled.add(req.slot)
            self._queue.remove(req)
            for following in self._queue[:1]:
                following.waits = False
        return True

    def _held(self, slot: int) -> int:
        return len(self._cache.extents.held.get(slot, ()))

    def _release(self, slot: int) -> None:
        self._cache.resize(slot, 0)
        self._settled.discard(slot)
        del self._holders[slot]
