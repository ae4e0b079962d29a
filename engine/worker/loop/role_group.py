"""One request at one stage in all the roles that it has there.

All roles are fed the same. In a *guided* group they step together, in one batch, and the stage makes one answer of
them. In a *joined* group each goes on to its own end, and what they gave for the next stage leaves as one bundle, once
all of them have ended. What a companion (a role that is not the first) gives never leaves on its own. A group of one
is the ordinary case. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.chunk import Bundle, Chunk
from engine.errors import StageFailed
from engine.stream import Taken
from engine.worker.stage import Stage
from engine.worker.stage_request import StageRequest


class RoleGroup:
    """One request at a stage in all its roles: ``reqs``, the main role's first."""

    def __init__(self, stage: Stage, reqs: Sequence[StageRequest]) -> None:
        self.stage = stage
        self.reqs = reqs
        self.guided = len(reqs) > 1 and stage.info.group == "guided"
        self.joined = len(reqs) > 1 and stage.info.group == "joined"
        self.stepping = reqs[:1] if self.guided else reqs
        """Roles that step on their own; of a guided group that is the main one, and the others come with it."""
        self.following: RoleGroup | None = None
        """The group at the next stage of this worker; None: the chunks of this one leave the worker."""
        self._released = False
        for req in reqs:
            req.group = reqs if len(reqs) > 1 else ()

    @property
    def main(self) -> StageRequest:
        return self.reqs[0]

    @property
    def full(self) -> bool:
        """Whether whoever feeds it must wait."""
        return any(req.inputs.room <= 0 and not req.inputs.ended for req in self.reqs)

    @property
    def done(self) -> bool:
        return all(req.done for req in self.reqs)

    def feed(self, chunk: Chunk, taken: Taken) -> None:
        """Give a chunk to every role if the stage takes such; ``taken`` is called once the last has done with it."""
        if chunk.kind not in self.stage.info.takes and not isinstance(chunk, Bundle):
            taken()
            return
        if len(self.reqs) == 1:
            self.main.inputs.put(chunk, taken)
            return
        left = len(self.reqs)

        def one_took() -> None:
            nonlocal left
            left -= 1
            if not left:
                taken()

        for req in self.reqs:
            req.inputs.put(chunk, one_took)

    def close(self) -> None:
        """Tell every role that no more will come."""
        for req in self.reqs:
            req.inputs.close()

    def bundle(self) -> Bundle | None:
        """Return what all roles of a joined group gave, once. None before all have ended, and again.

        Raises StageFailed if a role gave nothing while others gave something: guidance would be computed from half.
        """
        if not self.joined or not self.done or self._released:
            return None
        self._released = True
        given = {req.role: tuple(req.given) for req in self.reqs}
        missing = [role for role, chunks in given.items() if not chunks]
        if 0 < len(missing) < len(given):
            raise StageFailed(f"{self.stage.info.name} gave nothing for {', '.join(missing)}; ask again")
        return Bundle(given)
