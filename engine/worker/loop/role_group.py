"""One request at one stage, in all its roles.

All roles get the same input. In a *guided* group they step together, in one batch, and give one answer. In a *joined*
group each runs to its own end; then their chunks for the next stage leave as one Bundle. Chunks of a companion (any
role but the first) never leave on their own. Most groups have one role. Pure: no I/O, no clock.
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
        """The roles to schedule: all, but in a guided group only the main one, whose companions step with it."""
        self.following: RoleGroup | None = None
        """The group at the next stage of this worker; None if this group's chunks leave the worker."""
        self._released = False
        for req in reqs:
            req.group = reqs if len(reqs) > 1 else ()

    @property
    def main(self) -> StageRequest:
        return self.reqs[0]

    @property
    def full(self) -> bool:
        """Whether the input queue of a role has no room, so that the previous stage must wait."""
        return any(req.inputs.room <= 0 and not req.inputs.ended for req in self.reqs)

    @property
    def done(self) -> bool:
        return all(req.done for req in self.reqs)

    def feed(self, chunk: Chunk, taken: Taken) -> None:
        """Feed a chunk to every role, if the stage takes its kind. ``taken`` is called once all roles have read it."""
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
        """End the input of every role."""
        for req in self.reqs:
            req.inputs.close()

    def bundle(self) -> Bundle | None:
        """Return the chunks of all roles of a joined group. None before all roles have ended, and after the first call.

        Raises StageFailed if some roles produced chunks and others none: guidance needs both.
        """
        if not self.joined or not self.done or self._released:
            return None
        self._released = True
        given = {req.role: tuple(req.given) for req in self.reqs}
        missing = [role for role, chunks in given.items() if not chunks]
        if 0 < len(missing) < len(given):
            raise StageFailed(f"{self.stage.info.name} produced no output for {', '.join(missing)}; try again")
        return Bundle(given)
