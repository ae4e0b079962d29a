"""Helpers of a chain of models: their combined description, and the input that each model reads.

The stage ``llm.chain`` decides which model answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, TypeVar

import msgspec

from engine.chunk import Chunk, Text, VoiceText, kinds
from engine.core import Ability, Facets, ImagePart, Message, Part, Request, StageInfo, TextPart, VideoPart
from engine.errors import ConfigError

T = TypeVar("T")

REPLAYS: tuple[Literal["exact", "continue", "never"], ...] = ("exact", "continue", "never")
"""Guarantees after a lost replica, strongest first."""
SAID = kinds(Text, VoiceText)
UNSEEN = "[A picture that you cannot see.]"
"""Replaces a picture for a model without vision if another model of its chain can see it."""


def chained_info(infos: Sequence[StageInfo]) -> StageInfo:
    """Combine the descriptions of a chain's models.

    Raises ConfigError if a model cannot be part of a chain, or if the models do not fit together.
    """
    for i, info in enumerate(infos):
        if not info.answers or info.blocking:
            raise ConfigError(
                f"models[{i}]: is no language model; use only such stages in a chain: an llm.* stage or nano.thinker"
            )
        if info.takes != infos[0].takes:
            raise ConfigError(f"models[{i}]: takes {_listed(info.takes)}, but models[0] {_listed(infos[0].takes)}")
    return StageInfo(
        takes=infos[0].takes,
        emits=frozenset[str]().union(*(info.emits for info in infos)),
        feeds=_feeds(infos),
        answers=True,
        unfit=infos[-1].unfit if all(info.unfit for info in infos) else "",
        slots=min(info.slots for info in infos),
        batch=min((info.batch for info in infos if info.batch), default=None),
        max_pending=min(info.max_pending for info in infos),
        checkpoints=frozenset[str]().union(*(info.checkpoints for info in infos)),
        replay=REPLAYS[max(REPLAYS.index(info.replay) for info in infos)],
        prepares=any(info.prepares for info in infos),
        facets=_facets([info.facets for info in infos]),
    )


def _feeds(infos: Sequence[StageInfo]) -> frozenset[str]:
    feeds = {info.feeds for info in infos}
    if len(feeds) == 1:
        return infos[0].feeds
    if all(info.feeds <= SAID for info in infos):
        return kinds(VoiceText)  # a chunk of Text would be spoken twice where another model feeds VoiceText
    listed = "; ".join(sorted(map(_listed, feeds)))
    raise ConfigError(f"models: no stage can take the different outputs of these models ({listed})")


def _facets(facets: Sequence[Facets]) -> Facets:
    """Combine the facets. The context is the longest one, because the model that has it can read it all.

    The examples are those of the last model, which answers everything that the others decline.
    """
    longest = max(facets, key=lambda one: one.context or 0)
    vocabularies = {one.tokenizer for one in facets if one.tokenizer}
    return Facets(
        model=" + ".join(dict.fromkeys(one.model for one in facets if one.model)),
        languages=_first([one.languages for one in facets]),
        heard_languages=_first([one.heard_languages for one in facets]),
        sees=frozenset[Ability]().union(*(one.sees for one in facets)),
        camera=next((one.camera for one in facets if one.camera), None),
        context=longest.context,
        cost=longest.cost,
        tokenizer=vocabularies.pop() if len(vocabularies) == 1 else "",
        examples=facets[-1].examples,
        leaving=" ".join(dict.fromkeys(one.leaving for one in facets if one.leaving)),
        summarizes=any(one.summarizes for one in facets),
        writes_json=any(one.writes_json for one in facets),
    )


def _first(values: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    return next((value for value in values if value), ())


def _listed(kinds: frozenset[str]) -> str:
    return " and ".join(sorted(kinds)) or "nothing"


def visible(request: Request, sees: frozenset[Ability], chain_sees: frozenset[Ability]) -> Request:
    """Return the request for a model that sees less than its chain, with a note in place of each invisible picture."""
    hidden = chain_sees - sees
    if not any(_is_hidden(part, hidden) for message in request.messages for part in message.parts):
        return request
    return msgspec.structs.replace(request, messages=tuple(_noted(message, hidden) for message in request.messages))


def _noted(message: Message, hidden: frozenset[Ability]) -> Message:
    parts = (TextPart(UNSEEN) if _is_hidden(part, hidden) else part for part in message.parts)
    return msgspec.structs.replace(message, parts=tuple(parts))


def _is_hidden(part: Part, hidden: frozenset[Ability]) -> bool:
    return (isinstance(part, ImagePart) and "image" in hidden) or (isinstance(part, VideoPart) and "video" in hidden)


class RecordedInputs:
    """The input chunks of a chain, which each of its models reads from the start."""

    def __init__(self, inputs: AsyncIterator[Chunk]) -> None:
        self._inputs = inputs
        self._read: list[Chunk] = []

    async def again(self) -> AsyncIterator[Chunk]:
        """Yield the chunks that were already read, then further ones."""
        place = 0
        while True:
            if place == len(self._read):
                chunk = await anext(self._inputs, None)
                if chunk is None:
                    return
                self._read.append(chunk)
            yield self._read[place]
            place += 1
