"""The items that stand in prompts for the turns that they leave out: a summary, pinned items and results of tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from app.ids import new_id
from app.realtime.conversation.summary import summary_of
from app.realtime.protocol import CallItem, CallOutputItem, HostedCallItem, Item, MessageItem, MessageText
from engine import ModelInfo

_SUMMARY_SHARE = 0.2
"""Maximum share of the conversation's room that a summary takes."""
_KEPT_SHARE = 0.15
"""The same for the items that are kept unchanged."""


class OlderTurns:
    """The items that stand for the beginning of one session's conversation.

    They stay the same until more turns are left out or the client edits the beginning. ``tokens`` counts the tokens of
    items.
    """

    def __init__(self, model: ModelInfo, tokens: Callable[[Sequence[Item]], float]) -> None:
        self._character = model.cost.character
        self._tokens = tokens
        self._ids: tuple[str, ...] = ()
        self.items: tuple[Item, ...] = ()
        self.summary = ""
        """The summary among the items; "" without one."""
        self.written = ""
        """The part of the summary that a language model wrote."""

    def covers(self, older: Sequence[Item]) -> bool:
        """Return whether the items stand for exactly these."""
        return tuple(item.id for item in older) == self._ids

    def beginning(self, prompt: Sequence[Item]) -> tuple[Item, ...]:
        """Return the items if a prompt begins with them; otherwise ()."""
        ids = [item.id for item in self.items]
        return self.items if [item.id for item in prompt[: len(ids)]] == ids else ()

    def replace(self, older: tuple[Item, ...], room: float, written: str = "") -> None:
        """Choose the items anew. ``room`` are the tokens of the whole conversation, ``written`` a model's summary."""
        kept = self._kept(older, _KEPT_SHARE * room)
        rest = [item for item in older if item.id not in kept]
        chars = int(_SUMMARY_SHARE * room / self._character)
        self.summary, is_usable = summary_of(written, rest, chars)
        self.written = written if is_usable else ""
        notes = MessageItem(id=new_id("item"), role="user", content=(MessageText(self.summary),))
        self.items = (*([notes] if self.summary else []), *(item for item in older if item.id in kept))
        self._ids = tuple(item.id for item in older)

    def _kept(self, older: Sequence[Item], room: float) -> set[str]:
        """Return the ids of the pinned items, system messages and results of tools that fit: the newest, in this
        order.
        """
        kept = set[str]()
        newest = _groups(older)[::-1]
        for group in sorted(newest, key=_is_result):
            size = self._tokens(group)
            if size <= room:
                room -= size
                kept |= {item.id for item in group}
        return kept


def _is_result(group: tuple[Item, ...]) -> bool:
    return not isinstance(group[0], MessageItem)


def _groups(items: Iterable[Item]) -> list[tuple[Item, ...]]:
    """Return the items that survive their turns. A call and its result stay together."""
    calls = dict[str, Item]()
    groups = list[tuple[Item, ...]]()
    for item in items:
        match item:
            case MessageItem() if item.pinned or item.role == "system":
                groups.append((item,))
            case CallItem(call_id=call_id):
                calls[call_id] = item
            case CallOutputItem(call_id=call_id) if call_id in calls:
                groups.append((calls.pop(call_id), item))
            case HostedCallItem() if item.result is not None:
                groups.append((item,))
            case _:
                pass
    return groups
