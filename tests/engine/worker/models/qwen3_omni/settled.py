"""A turn whose next piece comes once all before it is in the thinker's cache: none of its states is passed over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.chunk import Chunk
from engine.worker.omni import thinker
from engine.worker.omni.film import StreamingFilm
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.prompter import Prompter
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import until


class Settled:
    """Follows a live turn that is shown, from the prompter to the cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.came, self.due = 0, 1
        """Chunks that the prompter took, and the prompts that it is to make of them."""
        self.made: list[Prompt] = []
        self.req: StageRequest | None = None
        prompt, opened = Prompter.prompt, thinker.OmniThinker.open

        def making(prompter: Prompter, *given: Any, **named: Any) -> Prompt:
            self.made.append(prompt(prompter, *given, **named))
            return self.made[-1]

        def opening(stage: thinker.OmniThinker, req: StageRequest) -> None:
            self.req = req
            opened(stage, req)

        monkeypatch.setattr(Prompter, "prompt", making)
        monkeypatch.setattr(thinker.OmniThinker, "open", opening)
        for name in ("push", "add_frame"):
            monkeypatch.setattr(StreamingFilm, name, self._counting(getattr(StreamingFilm, name)))

    def _counting(self, take: Any) -> Any:
        def counted(turn: StreamingFilm, chunk: Any) -> bool:
            grown: bool = take(turn, chunk)
            self.came, self.due = self.came + 1, self.due + grown
            return grown

        return counted

    def holds(self, came: int) -> bool:
        """Whether so many chunks came, and nothing of them is left to be done."""
        if self.req is None or self.came < came or len(self.made) < self.due:
            return False
        return self.req.state.prompt is self.made[-1] and not self.req.state.reading

    async def paced(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Hand chunks on, each once those before it have settled; the end, too."""
        self.came, self.due, count = 0, 1, 0
        self.made.clear()
        async for chunk in chunks:
            yield chunk
            count += 1
            await until(lambda count=count: self.holds(count), 50_000)
