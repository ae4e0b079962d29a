"""JSON of the Realtime protocol's items and events for MCP tools. Stateless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from app.realtime.protocol import server_events
from app.realtime.protocol.items import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    HostedCallError,
    HostedCallItem,
    HostedItem,
    Item,
    ToolListItem,
)

WireEvent = dict[str, Any]


def encode_hosted(item: HostedItem) -> dict[str, Any]:
    """Return an item in the protocol's format. These items have no status."""
    match item:
        case ToolListItem(id=id, server_label=server_label, tools=tools):
            return {"id": id, "type": "mcp_list_tools", "server_label": server_label, "tools": list(tools)}
        case HostedCallItem():
            return {
                **_called(item, "mcp_call"),
                "approval_request_id": item.approval_request_id,
                "output": item.output,
                "error": None if item.error is None else _error(item.error),
            }
        case ApprovalRequestItem():
            return _called(item, "mcp_approval_request")
        case ApprovalResponseItem():
            head = {"id": item.id, "type": "mcp_approval_response", "approve": item.approve}
            return {**head, "approval_request_id": item.approval_request_id, "reason": item.reason}


def hosted_events(
    event: server_events.HostedToolEvent, item_event: Callable[[str, Item, str | None], WireEvent]
) -> list[WireEvent]:
    """Return the wire events. ``item_event`` creates ``conversation.item.added`` and ``done``."""
    match event:
        case server_events.ToolListBegunEvent(item, previous_id):
            begun = {"type": "mcp_list_tools.in_progress", "item_id": item.id}
            return [item_event("added", item, previous_id), begun]
        case server_events.ToolListDoneEvent(item, previous_id, failed):
            done = {"type": f"mcp_list_tools.{'failed' if failed else 'completed'}", "item_id": item.id}
            return [done, item_event("done", item, previous_id)]
        case server_events.HostedCallCreatedEvent(ref, item, previous_id):
            return [_output("added", ref, item), item_event("added", item, previous_id)]
        case server_events.HostedCallDeltaEvent(ref, text):
            return [{"type": f"{_ARGUMENTS}.delta", "response_id": ref.response_id, **_within(ref), "delta": text}]
        case server_events.HostedCallWrittenEvent(ref, item):
            whole = {"response_id": ref.response_id, **_within(ref), "arguments": item.arguments}
            return [{"type": f"{_ARGUMENTS}.done", **whole}, _output("done", ref, item)]
        case server_events.HostedCallBegunEvent(ref):
            return [{"type": "response.mcp_call.in_progress", **_within(ref)}]
        case server_events.HostedCallDoneEvent(ref, item, previous_id):
            end = "completed" if item.error is None else "failed"
            return [{"type": f"response.mcp_call.{end}", **_within(ref)}, item_event("done", item, previous_id)]
        case server_events.HostedCallApprovedEvent(item, previous_id):
            return [item_event("added", item, previous_id)]
        case server_events.ApprovalRequestedEvent(ref, item, previous_id):
            added = [_output("added", ref, item), item_event("added", item, previous_id)]
            return [*added, item_event("done", item, previous_id), _output("done", ref, item)]
        case _:
            assert_never(event)


_ARGUMENTS = "response.mcp_call_arguments"


def _called(item: HostedCallItem | ApprovalRequestItem, type: str) -> dict[str, Any]:
    head = {"id": item.id, "type": type, "server_label": item.server_label}
    return {**head, "name": item.name, "arguments": item.arguments}


def _error(error: HostedCallError) -> dict[str, Any]:
    code = {} if error.kind == "tool_execution_error" else {"code": error.code}
    return {"type": error.kind, "message": error.message, **code}


def _output(moment: str, ref: server_events.OutputItemRef, item: HostedItem) -> WireEvent:
    head = {"response_id": ref.response_id, "output_index": ref.index}
    return {"type": f"response.output_item.{moment}", **head, "item": encode_hosted(item)}


def _within(ref: server_events.OutputItemRef) -> WireEvent:
    return {"item_id": ref.item_id, "output_index": ref.index}
