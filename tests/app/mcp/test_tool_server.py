"""MCP servers as clients use them: a real one, and ones that hang, lie, flood, and lead elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp")

from app.client_address import is_public
from app.mcp import CallResult, HostedTool, ToolServer, ToolServerError, ToolServers, functions_of
from app.mcp.transport import MOST_BYTES, PinnedTransport
from app.refusal import Refusal
from app.settings import McpServer
from tests.app.hosted_tools import library
from tests.app.mcp_rig import Liar, Library, Reply, answer, head, liar, result, tool

__all__ = ["library"]


def opened(url: str, setting: dict[str, Any] | None = None, **entry: Any) -> ToolServer:
    """A server that the operator named, as a client names it."""
    named: Any = {"url": url, "private": True, **(setting or {})}
    tree = {"type": "mcp", "server_label": "files", "server_url": url, "require_approval": "never", **entry}
    return ToolServers((McpServer(**named),)).read(tree, "tools[0]")


async def listed(server: ToolServer) -> list[str]:
    return [one.name for one in await server.list_tools()]


async def failure(server: ToolServer) -> ToolServerError:
    with pytest.raises(ToolServerError) as raised:
        await server.list_tools()
    return raised.value


async def test_a_real_server_is_listed_and_called(library: Library) -> None:
    server = opened(library.url, authorization="sesame", headers={"x-team": "red"})
    tools = {one.name: one for one in await server.list_tools()}
    shelf = tools["shelf"]
    assert (shelf.description, shelf.read_only, shelf.tool.name) == ("Where a book stands.", True, "shelf")
    assert shelf.input_schema["properties"]["title"] == {"title": "Title", "type": "string"}
    assert await shelf.call('{"title": "Emma"}') == CallResult("Emma is on shelf nine")
    assert (library.calls, library.keys) == ([("shelf", {"title": "Emma"})], ["Bearer sesame"])


async def test_what_a_tool_gets_wrong_is_told(library: Library) -> None:
    tools = {one.name: one for one in await opened(library.url).list_tools()}
    failed = await tools["lend"].call('{"title": "Emma"}')
    assert failed.error is not None
    assert (failed.error.kind, failed.output) == ("tool_execution_error", None)
    assert failed.text.startswith("Error: ")
    assert "nobody may lend that" in failed.text
    long = await tools["archive"].call("{}")
    assert long.text == "Error: The result has 100000 characters (the limit is 65536)."
    for arguments in ("[]", "{", "7"):
        refused = await tools["shelf"].call(arguments)
        assert refused.text == "Error: The arguments of the call are not a JSON object."
    assert [name for name, _ in library.calls] == ["lend", "archive"]


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (["shelf"], ["shelf"]),
        ([], []),
        ({"tool_names": ["lend", "shelf"]}, ["shelf", "lend"]),
        ({"read_only": True}, ["shelf"]),
        ({"read_only": False, "tool_names": ["shelf", "lend"]}, ["lend"]),
    ],
)
async def test_only_allowed_tools_are_there(library: Library, allowed: Any, names: list[str]) -> None:
    assert await listed(opened(library.url, allowed_tools=allowed)) == names


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        (None, [True, True]),
        ("always", [True, True]),
        ("never", [False, False]),
        ({"never": {"tool_names": ["look"]}}, [False, True]),
        ({"always": {"tool_names": ["look"]}}, [True, False]),
        ({"never": {"read_only": True}}, [True, False]),
        ({"always": {"tool_names": ["look"]}, "never": {"tool_names": ["look"]}}, [True, True]),
    ],
)
async def test_a_client_is_asked_before_a_tool_runs(asked: Any, needed: list[bool]) -> None:
    tools = [tool("look"), tool("read", annotations={"readOnlyHint": True})]
    async with liar(lambda message: result(message, tools=tools)) as one:
        served = await opened(one.url, require_approval=asked).list_tools()
        assert [known.needs_approval for known in served] == needed


async def test_the_operators_own_address_is_asked() -> None:
    async with liar(lambda message: result(message, tools=[])) as one:
        tree = {"type": "mcp", "server_label": "files", "server_url": one.url.replace("http:", "HTTP:") + "//"}
        await ToolServers((McpServer(url=one.url, private=True),)).read(tree, "tools[0]").list_tools()
        assert {asked.split()[1] for asked, _ in one.asked} == {"/mcp"}


async def test_nobody_is_asked_whom_the_operator_did_not_name(library: Library) -> None:
    tree = {"type": "mcp", "server_label": "library", "server_url": library.url}
    elsewhere = McpServer(url="https://docs.example/mcp")
    for servers in (ToolServers(), ToolServers((elsewhere,))):
        with pytest.raises(Refusal) as refused:
            servers.read(tree, "tools[0]")
        assert (refused.value.code, refused.value.param) == ("unsupported_value", "tools[0].server_url")
    for near in ("https://docs.example/mcp/", "https://DOCS.example:443/mcp"):
        ToolServers((elsewhere,)).read({**tree, "server_url": near}, "tools[0]")
    for other in (
        "http://docs.example/mcp", "https://docs.example/mcp/more", "https://docs.example:444/mcp", "https://x/mcp",
        "https://me:key@docs.example/mcp", "https://docs.example/mcp?x=1", "https://docs.example/mcp#x", "docs.example",
        "", "https://docs.example/x/../mcp%2f", "https://[::1", "\x00",
    ):  # fmt: skip
        with pytest.raises(Refusal):
            ToolServers((elsewhere,)).read({**tree, "server_url": other}, "tools[0]")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_label": "a b"}, ".server_label"),
        ({"server_label": None}, ".server_label"),
        ({"connector_id": "connector_gmail"}, ".connector_id"),
        ({"tunnel_id": "t"}, ".tunnel_id"),
        ({"headers": {"Host": "inside"}}, ".headers"),
        ({"headers": {"MCP-Session-Id": "x"}}, ".headers"),
        ({"headers": {"content-length": "9"}}, ".headers"),
        ({"headers": {"x": "a\r\nhost: inside"}}, ".headers"),
        ({"headers": {"a b": "c"}}, ".headers"),
        ({"headers": {f"x-{n}": "" for n in range(33)}}, ".headers"),
        ({"authorization": "a\nb"}, ".authorization"),
        ({"authorization": "a", "headers": {"Authorization": "b"}}, ".authorization"),
        ({"require_approval": "maybe"}, ".require_approval"),
        ({"allowed_tools": [7]}, ".allowed_tools[0]"),
    ],
)
async def test_an_entry_that_says_nothing_sensible_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as refused:
        opened("https://docs.example/mcp", **fields)
    assert refused.value.param == f"tools[0]{param}"


async def test_keys_are_not_shown() -> None:
    server = opened("https://docs.example/mcp", authorization="sesame", headers={"x-key": "sesame"})
    assert "sesame" not in json.dumps(server.entry.shown)
    assert server.entry.shown["server_url"] == "https://docs.example/mcp"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
        "fe80::1%lo", "fc00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::a9fe:a9fe", "not an address",
    ],
)  # fmt: skip
def test_addresses_that_are_not_the_internets(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_the_internet() -> None:
    assert all(map(is_public, ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e")))


async def test_a_name_that_leads_inside_is_not_asked() -> None:
    async with liar(lambda message: result(message, tools=[])) as one:
        refused = await failure(opened(one.url, {"private": False}))
        assert "private address" in str(refused)
        assert not one.asked


async def test_an_address_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere the second time is not followed."""
    loop, names = asyncio.get_running_loop(), list[str]()

    async def resolve(host: str, port: int, **kwargs: Any) -> Any:
        names.append(host)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    def reply(message: dict[str, Any]) -> bytes:
        return result(message, tools=[tool()], content=[{"type": "text", "text": "seen"}])

    async with liar(reply) as one:
        with monkeypatch.context() as patched:
            patched.setattr(loop, "getaddrinfo", resolve)
            (look,) = await opened(f"http://files.example:{one.port}/mcp").list_tools()
            assert await look.call("{}") == CallResult("seen")
        assert names == ["files.example"]
        assert all(f"host: files.example:{one.port}" in asked.lower() for asked, _ in one.asked)


async def test_a_name_that_nobody_resolves_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*args: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    refused = await failure(opened("https://files.example/mcp", {"timeout_s": 0.05}))
    assert str(refused) == "The MCP server's host name 'files.example' can't be resolved."


async def test_a_key_is_not_taken_along_to_another_host() -> None:
    async with liar(lambda message: result(message, tools=[tool()])) as inside:

        def redirect(message: dict[str, Any]) -> bytes:
            return head(307, b"", location=f"http://localhost:{inside.port}/mcp")

        async with liar(redirect) as one:
            refused = await failure(opened(one.url, authorization="sesame"))
        assert "redirects to another origin" in str(refused)
        assert not inside.asked


async def test_no_other_origin_is_asked_whatever_the_library_wants() -> None:
    """A port or a scheme of its own is another origin, and so is the same address by another name."""
    async with liar(lambda message: result(message, tools=[tool()])) as inside:
        url = httpx2.URL(f"http://files.example:{inside.port}/mcp")
        others = url.copy_with(host="127.0.0.1"), url.copy_with(port=inside.port + 1), "https://other.example/"
        transport = PinnedTransport(url, "127.0.0.1")
        async with httpx2.AsyncClient(transport=transport) as client:
            assert (await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "x"})).status_code == 200
            for other in others:
                with pytest.raises(httpx2.ReadError):
                    await client.post(other, headers={"authorization": "Bearer sesame"})
        assert "points to another server" in str(transport.failure)
        assert len(inside.asked) == 1


async def _never() -> bytes:
    await asyncio.Event().wait()
    return b""


def _flood(message: dict[str, Any]) -> bytes:
    news = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    event = f"event: message\ndata: {json.dumps(news)}\n\n"
    return head(200, event.encode() * 40_000, content_type="text/event-stream")


def _pages(message: dict[str, Any]) -> bytes:
    return result(message, tools=[], nextCursor="more")


def _schema(schema: Any) -> Reply:
    return lambda message: result(message, tools=[{"name": "look", "inputSchema": schema}])


def _error(message: dict[str, Any]) -> bytes:
    return answer({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32001, "message": "no"}})


def _bomb(message: dict[str, Any]) -> bytes:
    body = gzip.compress(b" " * (50 << 20))
    return head(200, body, content_type="application/json", content_encoding="gzip")


def _stream(*events: str) -> Callable[[dict[str, Any]], bytes]:
    """Send these data as events, and then nothing."""
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return lambda message: head(200, body, content_type="text/event-stream")


def _ping(id: int) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"})


HOSTILE: dict[str, tuple[Reply, str]] = {
    "hangs": (lambda message: _never(), "did not respond within 0.3 s"),
    "ten megabytes": (lambda message: result(message, tools=[tool(description="x" * (10 << 20))]), "more than 1024 kB"),
    "floods": (_flood, "more than 8192 lines"),
    "asks back": (_stream(*(_ping(n) for n in range(17))), "made more than 16 requests"),
    "asks back in a long stream": (_stream(*(_ping(n) for n in range(2000))), "made more than 16 requests"),
    "events without data": (_stream(*[""] * 5000), "more than 8192 lines"),
    "comments": (lambda message: head(200, b":\r\n" * 5000, content_type="text/event-stream"), "8192 lines"),
    "lists in lists": (lambda message: result(message, tools=[], x=[[]] * 100_000), "more than 65536 values"),
    "lists in a stream": (_stream(json.dumps({"x": [[]] * 100_000})), "more than 65536 values"),
    "a bomb": (_bomb, "content encoding"),
    "pages without end": (_pages, "more than 16 pages"),
    "many tools": (lambda message: result(message, tools=[tool(f"t{n}") for n in range(65)]), "more than 64 tools"),
    "large tools": (lambda message: result(message, tools=[tool(description="x" * 70_000)]), "more than 64 kB"),
    "an odd name": (lambda message: result(message, tools=[tool("a b\n")]), "invalid name"),
    "a schema that is none": (_schema("object"), "violates the protocol"),
    "a schema of no object": (_schema({"type": "string"}), "violates the protocol"),
    "a number of 70 bits": (_schema({"type": "object", "maximum": 2**70}), "a value that can't be encoded as JSON"),
    "no JSON": (lambda message: head(200, b"{", content_type="application/json"), "MCP server"),
    "deep JSON": (lambda message: head(200, b"[" * 500_000, content_type="application/json"), "MCP server"),
    "HTML": (lambda message: head(200, b"<html>", content_type="text/html"), "error: Unexpected content type"),
    "an error": (_error, "error: no"),
    "no key": (lambda message: head(401, b""), "HTTP 401"),
    "broken": (lambda message: head(500, b"x" * 2_000_000), "HTTP 500"),
    "nothing": (lambda message: b"", "did not respond within 0.3 s"),
    "a head without end": (lambda message: b"HTTP/1.1 200 X\r\nx: " + b"y" * (4 << 20), "MCP server"),
    "no HTTP": (lambda message: b"SMTP 1.0\r\n\r\n", "MCP server"),
}  # fmt: skip


CALLED: dict[str, tuple[Reply, str]] = {
    "a number as a result": (
        lambda message: result(message, content=[], structuredContent={"seconds": 2**70}),
        "can't be encoded as JSON",
    )
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_server_is_one_clear_error(kind: str) -> None:
    reply, said = HOSTILE[kind]
    async with liar(reply) as one:
        patient = {"timeout_s": 0.3 if "0.3 s" in said else 30.0}
        refused = await failure(opened(one.url, patient))
        assert said in str(refused)
        assert len(str(refused)) < 600


@pytest.mark.parametrize(
    "kind", ["hangs", "ten megabytes", "floods", "a bomb", "a number as a result", "no JSON", "an error", "broken"]
)
async def test_a_call_to_a_hostile_server_is_an_error_that_the_thinker_is_told(kind: str) -> None:
    reply, said = (HOSTILE | CALLED)[kind]
    async with liar(reply) as one:
        outcome = await opened(one.url, {"timeout_s": 0.3 if "0.3 s" in said else 30.0}).call("look", "{}")
        assert outcome.output is None
        assert outcome.text.startswith("Error: ")
        assert said in outcome.text
        assert len(outcome.text) < 600


async def test_notifications_start_no_work_and_requests_are_refused() -> None:
    """A long call reports its progress, and a server may ask for what its client has not: the call goes on."""

    def reply(message: dict[str, Any]) -> bytes:
        if "method" not in message:
            return head(202, b"")
        news = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        done = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "structuredContent": {}}})
        roots = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
        return _stream(*[news] * 600, roots, done)(message)

    async with liar(reply) as one:
        assert await opened(one.url).call("look", "{}") == CallResult("{}")


async def test_a_schema_of_results_is_not_looked_up() -> None:
    """A server could have this one fetch addresses, or check for minutes."""
    async with liar(lambda message: result(message)) as inside:
        schema = {"type": "object", "$ref": f"{inside.url}/schema.json"}
        tools = [tool(outputSchema=schema, inputSchema={**schema, "pattern": "(a+)+$"})]

        def reply(message: dict[str, Any]) -> bytes:
            if message["method"] == "tools/list":
                return result(message, tools=tools)
            return result(message, content=[], structuredContent={"a": "a" * 40})

        async with liar(reply) as one:
            (look,) = await opened(one.url).list_tools()
            assert await look.call("{}") == CallResult('{"a":"%s"}' % ("a" * 40))
            assert one.methods.count("tools/list") == 1
        assert not inside.asked


async def test_a_server_that_asks_back_gets_nothing() -> None:
    """Sampling, the user's files, a question to the user: none of these is served."""
    asked: list[dict[str, Any]] = []

    def reply(message: dict[str, Any]) -> bytes:
        if "method" not in message:
            return head(202, b"")
        back = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 9},
        }
        whole = {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [tool()]}}
        events = "".join(f"event: message\ndata: {json.dumps(one)}\n\n" for one in (back, whole))
        return head(200, events.encode(), content_type="text/event-stream")

    async with liar(reply) as one:
        assert await listed(opened(one.url)) == ["look"]
        asked += [message for _, message in one.asked if message.get("id") == 7]
    assert all("error" in message for message in asked)


async def test_cancelling_leaves_at_once() -> None:
    begun = asyncio.Event()

    async def never() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with liar(lambda message: never()) as one:
        task = asyncio.create_task(opened(one.url).list_tools())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_session_of_the_servers_is_ended_and_nobody_listens_beside_it() -> None:
    """A stream of what a server wants to say by itself would be open for as long as it likes."""
    async with liar(lambda message: result(message, tools=[]), session_id="s1") as one:
        await listed(opened(one.url))
        last, _ = one.asked[-1]
        assert last.startswith("DELETE ")
        assert "mcp-session-id: s1" in last.lower()
        assert {asked.split()[0] for asked, _ in one.asked} == {"POST", "DELETE"}


async def test_a_result_outlives_a_goodbye_that_is_not_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is half a minute later when the server is told goodbye: the tool has run, and its time was its own."""
    loop = asyncio.get_running_loop()
    async with liar(lambda message: result(message, content=[{"type": "text", "text": "done"}]), "s1") as one:
        now = loop.time
        monkeypatch.setattr(
            loop, "time", lambda: now() + 31.0 * any(head.startswith("DELETE") for head, _ in one.asked)
        )
        assert await opened(one.url, {"timeout_s": 30.0}).call("look", "{}") == CallResult("done")
        assert one.asked[-1][0].startswith("DELETE")


async def test_names_that_are_taken_go_by_their_server() -> None:
    async with liar(lambda message: result(message, tools=[tool("look"), tool("a.b/c")])) as one:
        tools: list[HostedTool] = [
            *await opened(one.url).list_tools(),
            *await opened(one.url, server_label="two").list_tools(),
        ]
        functions = functions_of(tools, taken=["look"])
    assert {name: (known.server.entry.server_label, known.name) for name, known in functions.items()} == {
        "files_look": ("files", "look"),
        "a_b_c": ("files", "a.b/c"),
        "two_look": ("two", "look"),
        "two_a_b_c": ("two", "a.b/c"),
    }


def test_the_most_that_a_server_may_send() -> None:
    assert MOST_BYTES == 1 << 20
    assert Liar().methods == []
