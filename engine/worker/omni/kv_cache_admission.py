"""Room in a cache that requests share: who has enough of it, who waits for it, and who gives way. Computes nothing.

A request whose whole prompt is known gets, at once and before anything else is computed for it, all the room that it
may ever use, or it waits in its turn. What is computed ahead, of a prompt that is still being spoken, may be given up
for that. So whoever holds room either needs no more to come to its end, or lets go of it: no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.worker.nn.slots import KvSlots
from engine.worker.stage_request import StageRequest

AHEAD = 128  # positions by which room grows while a user speaks: ten seconds of sound


class KvCacheAdmission:
    """The requests that hold room in a cache, and those that wait for it, in their order.

    ``give_up`` is called with a request whose rows are gone: they are to be computed anew. Where every slot has a full
    context of its own, there is always room.
    """

    def __init__(self, cache: KvSlots, give_up: Callable[[StageRequest], None]) -> None:
        self._cache = cache
        self._give_up = give_up
        self._holders: dict[int, StageRequest] = {}
        self._settled: set[int] = set()
        self._queue: list[StageRequest] = []
        self._refused: dict[int, StageRequest] = {}  # by slot

    def has(self, req: StageRequest) -> bool:
        """Whether it has what it asked for last. One that does not wait may lack room: it is to ask again, in the next
        step."""
        return self._refused.get(req.slot) is not req

    def take(self, req: StageRequest, need: int, whole: bool) -> bool:
        """Have ``need`` positions for a request, which are all that it will use where its prompt is ``whole``.

        False where there is no room for them now: the request ``waits``, and this is to be called again.
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
        """Take back what requests held that are over."""
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
            loser = self._holders[ahead[-1]]  # of those ahead the one that began last
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
