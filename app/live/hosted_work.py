"""MCP tools in a Live session: items of the Responses protocol, made from the session's own.

The session lists tools and runs approved calls outside of responses. A client sees a listing at once, without a
delegation, and an approved call at the beginning of the next delegated response. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from app.live.delegation import DelegatedResponse, wrapped
from app.mcp import CallResult, ToolServerError
from app.realtime.protocol import ApprovalRequestItem, HostedCallItem, ToolListItem
from app.realtime.protocol.server_events import (
    ApprovalRequestedEvent,
    HostedCallApprovedEvent,
    HostedCallBegunEvent,
    HostedCallCreatedEvent,
    HostedCallDeltaEvent,
    HostedCallDoneEvent,
    HostedCallWrittenEvent,
    HostedToolEvent,
    OutputItemRef,
    ToolListBegunEvent,
    ToolListDoneEvent,
)
from app.responses.events import Event
from app.responses.hosted_items import ApprovalRequest, HostedCall, ToolListing

FAILED = "The MCP server can't list its tools."

WorkOf = Callable[[OutputItemRef], tuple[DelegatedResponse, list[Event]]]
"""Returns the delegated response of a call, and the events that precede the call."""


class HostedWork:
    """The MCP calls of one session that run, and those that its client has not seen yet."""

    def __init__(self) -> None:
        self.continues = False
        """Whether a call has returned, so that the next response continues its delegation."""
        self._listed = 0  # events of listings
        self._approved: list[HostedCallItem] = []
        self._running: dict[str, DelegatedResponse] = {}

    def events(self, event: HostedToolEvent, work_of: WorkOf) -> list[Event]:
        """Return what a client sees of an event now."""
        match event:
            case ToolListBegunEvent(item):
                listing = ToolListing(index=0, id=item.id, server_label=item.server_label)
                return self._numbered([_item("added", listing), *listing.opened()])
            case ToolListDoneEvent(item, _, failed):
                listing = _listing_of(item, failed)
                return self._numbered([*listing.closed(), _item("done", listing)])
            case HostedCallCreatedEvent(ref, item):
                delegated, told = work_of(ref)
                self._running[item.id] = delegated
                return [*told, *delegated.call_hosted(_call_of(item))]
            case HostedCallDeltaEvent(ref, text) if ref.item_id in self._running:
                return self._running[ref.item_id].piece(ref.item_id, text)
            case HostedCallWrittenEvent(_, item) if item.id in self._running:
                return self._running[item.id].arguments(item.id, item.arguments)
            case HostedCallDoneEvent(_, item):
                return self._returned(item)
            case ApprovalRequestedEvent(ref, item):
                delegated, told = work_of(ref)
                asked = delegated.call_hosted(_request_of(item))
                return [*told, *asked, *delegated.arguments(item.id, item.arguments)]
            case HostedCallBegunEvent() | HostedCallApprovedEvent() | HostedCallDeltaEvent() | HostedCallWrittenEvent():
                return []
            case _:
                assert_never(event)

    def unseen(self, delegated: DelegatedResponse) -> list[Event]:
        """Return the approved calls that the client has not seen, at the beginning of a response."""
        self.continues = False
        events: list[Event] = []
        for item in self._approved:
            events += [*delegated.call_hosted(_call_of(item)), *delegated.arguments(item.id, item.arguments)]
            events += delegated.returned(item.id, _result_of(item))
        self._approved.clear()
        return events

    def _numbered(self, events: list[Event]) -> list[Event]:
        for one in events:
            one["sequence_number"] = self._listed
            self._listed += 1
        return [wrapped(None, one) for one in events]

    def _returned(self, item: HostedCallItem) -> list[Event]:
        """Report the result of a call, and the end of a response that has waited for it."""
        self.continues = True
        delegated = self._running.pop(item.id, None)
        if delegated is None:  # it was approved, and belongs to no response yet
            self._approved.append(item)
            return []
        return delegated.returned(item.id, _result_of(item))


def _item(moment: str, listing: ToolListing) -> Event:
    return {"type": f"response.output_item.{moment}", "output_index": 0, "item": listing.item()}


def _listing_of(item: ToolListItem, failed: bool) -> ToolListing:
    error = FAILED if failed else None
    return ToolListing(index=0, id=item.id, server_label=item.server_label, tools=item.tools, error=error)


def _call_of(item: HostedCallItem) -> HostedCall:
    return HostedCall(
        index=0,
        id=item.id,
        call_id=item.id,
        server_label=item.server_label,
        name=item.name,
        function=item.function,
        arguments=item.arguments,
        approval_request_id=item.approval_request_id,
    )


def _request_of(item: ApprovalRequestItem) -> ApprovalRequest:
    return ApprovalRequest(
        index=0,
        id=item.id,
        call_id=item.id,
        server_label=item.server_label,
        name=item.name,
        function=item.function,
        arguments=item.arguments,
    )


def _result_of(item: HostedCallItem) -> CallResult:
    error = item.error
    return CallResult(item.output, None if error is None else ToolServerError(error.message, error.kind, error.code))
