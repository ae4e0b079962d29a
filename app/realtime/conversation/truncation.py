"""Selection of the items for the next prompt, so that it fits the model's context.

The oldest turns are left out of the prompt as a whole; the conversation keeps them. Token counts are estimates until
the model reports them (``token_counts``). One object per session.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.realtime.conversation.model_context import json_size, tools_size
from app.realtime.conversation.token_counts import TokenCounts
from app.realtime.protocol import Item, MessageItem, ResponseOptions, RetentionRatio
from app.refusal import Refusal
from engine import ModelInfo, ToolDefinition

Rule = str | RetentionRatio
"""The protocol's ``truncation``: ``auto``, ``disabled``, or a retention ratio."""

_KEPT = 2 / 3
"""Fraction of the room that is kept by default after a truncation.

Keeping less lets several turns pass before the start of the prompt changes again. A changed start invalidates the
prefix cache, which delays the next answer.
"""


class Truncation:
    """The first item of the prompt. It moves only when the conversation exceeds the context again."""

    def __init__(self, model: ModelInfo) -> None:
        self.counts = TokenCounts(model)
        self._context = model.context
        self._first: str | None = None

    def fit(
        self,
        rule: Rule,
        items: tuple[Item, ...],
        options: ResponseOptions,
        hosted: tuple[ToolDefinition, ...] = (),
        remember: bool = True,
    ) -> tuple[Item, ...]:
        """Return the items of the prompt: all, or the newest turns. Raises Refusal if truncation is disabled.

        The last turn always stays; the model decides whether it fits. Set ``remember`` to False if the items are not
        the conversation's own.
        """
        start = next((i for i, item in enumerate(items) if item.id == self._first), 0)
        kept, room = _turns(items[start:]), self._room(rule, options, hosted)
        costs = [self._tokens(turn) for turn in kept]
        if sum(costs) <= room or len(kept) < 2:
            return _joined(kept)
        if rule == "disabled":
            message = "The conversation exceeds the model's context, and session.truncation is 'disabled'."
            raise Refusal("context_length_exceeded", message, "truncation")
        room *= rule.retention_ratio if isinstance(rule, RetentionRatio) else _KEPT
        first, held = len(kept) - 1, costs[-1]
        while first and held + costs[first - 1] <= room:
            first -= 1
            held += costs[first]
        if remember:
            self._first = kept[first][0].id
        return _joined(kept[first:])

    def halve(
        self, rule: Rule, items: tuple[Item, ...], live: bool = False, remember: bool = True
    ) -> tuple[Item, ...] | None:
        """Return the newest half of a prompt that the model found too long; None if nothing can be left out.

        The last message stays, unless a ``live`` turn follows the items. Messages of a turn that the model never
        answered may be left out as well: otherwise they would make each later prompt too long.
        """
        cuts = [i for i, item in enumerate(items) if i and isinstance(item, MessageItem) and item.role == "user"]
        cuts += [len(items)] if live and items else []
        if rule == "disabled" or not cuts:
            return None
        room = self._tokens(items) / 2
        cut = next((i for i in cuts if self._tokens(items[i:]) <= room), cuts[-1])
        if remember and cut < len(items):
            self._first = items[cut].id
        return items[cut:]

    def _room(self, rule: Rule, options: ResponseOptions, hosted: tuple[ToolDefinition, ...]) -> float:
        """Return the tokens left for the conversation, after instructions, tools (``hosted`` are MCP tools) and the
        answer.
        """
        response = self._context // 3
        if options.max_output_tokens != "inf":
            response = min(response, options.max_output_tokens)
        room = self._context - response - self.counts.head(head_chars(options, hosted))
        limits = rule.token_limits if isinstance(rule, RetentionRatio) else None
        if limits is not None and limits.post_instructions is not None:
            room = min(room, limits.post_instructions)
        return max(room, 0.0)

    def _tokens(self, items: Sequence[Item]) -> float:
        return sum(map(self.counts.of, items))


def head_chars(options: ResponseOptions, hosted: tuple[ToolDefinition, ...]) -> int:
    """Return the characters of the instructions and of all tools as JSON."""
    return len(options.instructions) + tools_size(options) + (json_size(hosted) if hosted else 0)


def _turns(items: tuple[Item, ...]) -> list[tuple[Item, ...]]:
    """Split the items into turns. A turn starts with a user message after an item of another role."""
    turns: list[list[Item]] = []
    users = False
    for item in items:
        mine = isinstance(item, MessageItem) and item.role == "user"
        if not turns or (mine and not users):
            turns.append([])
        turns[-1].append(item)
        users = mine
    return [tuple(turn) for turn in turns]


def _joined(turns: Sequence[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(item for turn in turns for item in turn)
