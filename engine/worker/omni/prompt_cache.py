"""The thinker's prefix cache: stores each session's computed prompt, and reuses it up to the first changed row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.worker.loop.prefix import Prefixes
from engine.worker.nn.slots import KvSlots
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.talker_feed import TalkerFeed
from engine.worker.omni.thinker_state import PrefixKV, ThinkerState
from engine.worker.stage_request import StageRequest


class PromptCache:
    """The computed rows of requests (in slots) and of sessions (in ``prefixes``), with the talker's rows."""

    def __init__(self, slots: KvSlots, prefixes: Prefixes[PrefixKV], feed: TalkerFeed) -> None:
        self._slots = slots
        self._prefixes = prefixes
        self._feed = feed

    def rewind(self, thought: ThinkerState, prompt: Prompt) -> None:
        """Discard computed rows that have changed, because a frame pair of a live video got its second frame."""
        if thought.prompt is None:
            return
        end = min(thought.num_computed_tokens, len(prompt.ids))
        others = np.flatnonzero(thought.prompt.names[:end] != prompt.names[:end])
        end = int(others[0]) if len(others) else end
        if end < thought.num_computed_tokens:
            thought.hidden = [self._hidden(thought, prompt, end)]
            thought.num_computed_tokens = end
            thought.num_sent = min(thought.num_sent, end)

    def recall(self, req: StageRequest, prompt: Prompt) -> None:
        """Reuse the session's computed rows. The last row of a whole prompt is always computed, for its logits."""
        thought: ThinkerState = req.state
        start = thought.num_computed_tokens
        found = self._prefixes.find(req.request.session, prompt.names.tolist(), start)
        if found is None or (end := min(found[0], len(prompt.ids) - prompt.whole)) <= start:
            return
        self._slots.restore(req.slot, found[1].keys, found[1].values, start, end)
        thought.hidden.append(found[1].hidden[self._count(prompt, start) : self._count(prompt, end)])
        thought.num_computed_tokens = end

    def remember(self, req: StageRequest) -> None:
        """Store the computed rows that can no longer change, for the session's next request."""
        thought: ThinkerState = req.state
        prompt = thought.prompt
        assert prompt is not None
        thought.unkept = False
        end = thought.num_computed_tokens if prompt.whole else prompt.num_final
        hidden = np.concatenate(thought.hidden) if prompt.whole else self._hidden(thought, prompt, end)
        prefix = PrefixKV(*self._slots.copy(req.slot, end), hidden)
        names = [*prompt.names.tolist(), *thought.output_ids][:end]
        self._prefixes.keep(req.request.session, names, prefix, prefix.size)

    def _hidden(self, thought: ThinkerState, prompt: Prompt, end: int) -> NDArray[np.float32]:
        """Return the hidden rows that the talker needs among the first ``end`` rows."""
        return np.concatenate(thought.hidden)[: self._count(prompt, end)]

    def _count(self, prompt: Prompt, end: int) -> int:
        return len(self._feed.hidden_indices(prompt, slice(0, end)))
