"""Selection of the items for the next prompt, so that it fits the model's context.

The oldest turns are left out of the prompt as a whole; the conversation keeps them. If the model can summarize, a
summary stands for them (``older_turns``). Token counts are estimates until the model reports them (``token_counts``).
One object per session.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.realtime.conversation.model_context import json_size, tools_size
from app.realtime.conversation.older_turns import OlderTurns
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
_KEPT_WITH_SUMMARY = 0.4
"""The same for a model that can summarize. It includes the summary."""


class Truncation:
    """The first item of the prompt. It moves only when the conversation exceeds the context again, or is summarized.

    ``summarize_at`` is the fraction of the room above which older turns should be summarized; 1: never.
    """

    def __init__(self, model: ModelInfo, summarize_at: float = 1.0) -> None:
        self.counts = TokenCounts(model)
        self.summarizes = model.summarizes and summarize_at < 1
        self.older = OlderTurns(model, self._tokens)
        """The items that stand for the turns left out, if the model can summarize."""
        self._context = model.context
        self._summarize_at = summarize_at
        self.first: str | None = None
        """The id of the first item that the next prompt contains unchanged; None: the first of the conversation."""

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
        room = self._room(rule, options, hosted)
        older, rest = self._split(items, room, remember)
        turns = _turns(rest)
        if self._tokens(older) + self._tokens(rest) <= room or len(turns) < 2:
            return (*older, *rest)
        if rule == "disabled":
            message = "The conversation exceeds the model's context, and session.truncation is 'disabled'."
            raise Refusal("context_length_exceeded", message, "truncation")
        if self.summarizes and remember:
            self._summarize(items, turns, room, self._kept(rule), self.older.written)
            older, rest = self._split(items, room)
        else:
            rest = _joined(turns[self._cut(turns, room * self._kept(rule) - self._tokens(older)) :])
            self.first = rest[0].id if remember else self.first
        return (*older, *rest)

    def is_crowded(
        self, rule: Rule, items: tuple[Item, ...], options: ResponseOptions, hosted: tuple[ToolDefinition, ...] = ()
    ) -> bool:
        """Return whether the prompt for these items is so long that its older turns should be summarized."""
        if rule == "disabled" or not self.summarizes:
            return False
        room = self._room(rule, options, hosted)
        older, rest = self._split(items, room)
        most = room * max(self._summarize_at, (1 + self._kept(rule)) / 2)
        return self._tokens(older) + self._tokens(rest) > most and len(_turns(rest)) > 1

    def summarize(
        self,
        rule: Rule,
        items: tuple[Item, ...],
        options: ResponseOptions,
        hosted: tuple[ToolDefinition, ...],
        written: str,
    ) -> None:
        """Let a summary stand for older turns. ``written`` is the model's, or "" if there is none."""
        room = self._room(rule, options, hosted)
        turns = _turns(self._split(items, room)[1])
        if len(turns) > 1:
            self._summarize(items, turns, room, self._kept(rule), written)

    def halve(
        self, rule: Rule, items: tuple[Item, ...], live: bool = False, remember: bool = True
    ) -> tuple[Item, ...] | None:
        """Return the newest half of a prompt that the model found too long; None if nothing can be left out.

        The last message stays, unless a ``live`` turn follows the items. Messages of a turn that the model never
        answered may be left out as well: otherwise they would make each later prompt too long.
        """
        older = self.older.beginning(items)
        rest = items[len(older) :]
        cuts = [i for i, item in enumerate(rest) if i and isinstance(item, MessageItem) and item.role == "user"]
        cuts += [len(rest)] if live and rest else []
        if rule == "disabled" or not (cuts or older):
            return None
        if not cuts:
            return rest
        room = self._tokens(items) / 2
        older = older if self._tokens(older) <= room / 2 else ()
        cut = next((i for i in cuts if self._tokens(older) + self._tokens(rest[i:]) <= room), cuts[-1])
        if remember and cut < len(rest):
            self.first = rest[cut].id
        return (*older, *rest[cut:])

    def _split(
        self, items: tuple[Item, ...], room: float, remember: bool = True
    ) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """Return the items that stand for the turns left out, and the turns that are not left out."""
        start = next((i for i, item in enumerate(items) if item.id == self.first), 0)
        if not start or not self.summarizes:
            return (), items[start:]
        if not self.older.covers(items[:start]):
            if not remember:
                return (), items[start:]
            self.older.replace(items[:start], room)  # the client has edited the items, or the model found no room
        return self.older.items, items[start:]

    def _summarize(
        self, items: tuple[Item, ...], turns: list[tuple[Item, ...]], room: float, kept: float, written: str
    ) -> None:
        """Move the first item of the prompt, so that a fraction ``kept`` of the room is used with the summary."""
        share = room * min(1.0, kept / _KEPT_WITH_SUMMARY)
        before_last = len(items) - len(turns[-1])
        self.older.replace(items[:before_last], share, written)  # its length hardly depends on the last few turns
        rest = _joined(turns[self._cut(turns, room * kept - self._tokens(self.older.items)) :])
        self.older.replace(items[: len(items) - len(rest)], share, written)
        self.first = rest[0].id

    def _cut(self, turns: list[tuple[Item, ...]], room: float) -> int:
        """Return the index of the first turn of the newest ones that fit; the last one always does."""
        costs = [self._tokens(turn) for turn in turns]
        first = len(turns) - 1
        held = costs[-1]
        while first and held + costs[first - 1] <= room:
            first -= 1
            held += costs[first]
        return first

    def _kept(self, rule: Rule) -> float:
        """Return the fraction of the room that is kept when older turns are left out."""
        if isinstance(rule, RetentionRatio):
            return rule.retention_ratio
        return _KEPT_WITH_SUMMARY if self.summarizes else _KEPT

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
