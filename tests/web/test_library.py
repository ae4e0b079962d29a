"""The library from another origin, in a browser whose microphone says one sentence: they talk, and the tool is called.

The page of twenty lines and the element of one are those of ``web/LIBRARY.md``; the package is the tarball that
``web/pack.mjs`` makes, in a project of its own.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.app.rig import ROOT, Running
from tests.web.browser import MODULES, UNPROCESSED, WIRE, Chromium, Page
from tests.web.elsewhere import Elsewhere
from tests.web.other_origin import nano_server, place, saying

__all__ = ["nano_server", "place"]

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SENTENCE = "Please set a timer for ten minutes."
GUIDE = (ROOT / "web" / "LIBRARY.md").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(server: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    async with saying(SENTENCE, server, tmp_path_factory.mktemp("microphone")) as one:
        yield one


def guide(beginning: str, server: Running) -> str:
    """The example of the guide that begins so, at this server."""
    blocks = re.findall(r"```\w+\n(.*?)```", GUIDE, re.DOTALL)
    (block,) = [block for block in blocks if block.startswith(beginning)]
    assert "http://127.0.0.1:8000" in block
    return block.replace("http://127.0.0.1:8000", server.http)


async def opened(page: Page, url: str) -> None:
    for script in (UNPROCESSED, WIRE):
        await page.before(script)
    await page.do("goto", url)


async def talked(page: Page) -> None:
    """The user was understood, the page's tool was called with what they said, and its result was spoken of."""
    calls = (
        "window.wire.filter(({type, item}) => type === 'response.output_item.done' && item.type === 'function_call')"
    )
    await page.until(f"{calls}.length === 1")
    (call,) = await page.value(calls)
    assert call["item"]["name"] == "set_timer"
    assert call["item"]["arguments"].replace(" ", "") == '{"minutes":10}'
    created = "window.wire.filter(({type, out}) => type === 'conversation.item.create' && out)"
    await page.until(f"{created}.length === 1")
    (result,) = await page.value(created)
    assert result["item"]["output"] == '{"started":true,"minutes":10}'
    assert await page.errors() == []


async def test_twenty_lines_of_another_origin_talk_and_have_a_tool(
    server: Running, place: Elsewhere, browser: Chromium
) -> None:
    html = guide("<!doctype html>", server)
    assert len(html.strip().splitlines()) <= 22
    async with browser.page() as page:
        await opened(page, place.page("twenty.html", html))
        await page.do("click", "button")
        await page.shows("p", "user: ")
        await talked(page)
        await page.shows("p", "answer: ")
        await page.do("click", "button")
        await server.empty()


async def test_the_element_of_one_line_talks_and_hangs_up_when_it_goes(
    server: Running, place: Elsewhere, browser: Chromium
) -> None:
    line = guide('<script type="module"', server)
    assert len(line.strip().splitlines()) == 1
    tool = """
      const schema = { properties: { minutes: { type: "number" } }, required: ["minutes"] };
      const { voice } = document.querySelector("parley-call");
      voice.tool("set_timer", schema, ({ minutes }) => ({ started: true, minutes }));
      voice.on("text", (who, item, text, final) => final && (window.finals ??= []).push([who, text]));
    """
    async with browser.page() as page:
        html = f"<!doctype html>{line.replace('<parley-call>', '<parley-call transport=webrtc>')}"
        await opened(page, place.page("element.html", f'{html}<script type="module">{tool}</script>'))
        await page.do("click", "parley-call button[part=button]")
        await page.do("waitForSelector", "parley-call[data-state=speaking]")
        await talked(page)
        await page.until("window.finals?.some(([who]) => who === 'answer')")
        assert "timer" in dict(await page.value("window.finals"))["user"]
        assert await page.value("document.querySelector('parley-call').voice.transportUsed") == "webrtc"
        await page.value("document.body.append(document.querySelector('parley-call'))")  # moved: the call goes on
        assert await page.value("document.querySelector('parley-call').voice.talking")
        await page.value("(window.gone = document.querySelector('parley-call')).remove()")
        await page.until("!window.gone.voice.talking && window.gone.voice.state === 'idle'")
        await server.empty()


MAIN = """
import { keyFrom, Problem, VoiceClient, type VoiceState } from "parley-voice";
import { ParleyCall } from "parley-voice/call";

const voice: VoiceClient = new VoiceClient({
  server: import.meta.env.VITE_SERVER,
  session: { audio: { input: { turn_detection: { type: "server_vad", silence_duration_ms: 600 } } } },
});
const schema = {
  description: "Starts a timer.",
  properties: { minutes: { type: "number" }, label: { type: "string", enum: ["tea", "egg"] } },
  required: ["minutes"],
} as const;
voice.tool("set_timer", schema, async ({ minutes, label }, { signal, callId }) => {
  const much: number = minutes;
  const what: "tea" | "egg" | undefined = label;
  // @ts-expect-error: it is a number
  void (() => minutes.trim());
  return { started: !signal.aborted && what === undefined && callId !== "", minutes: much };
});
// @ts-expect-error: there is no such event
voice.on("nothing", () => undefined);
// @ts-expect-error: nor such haste
export const mistaken = () => voice.setEagerness("soon");
voice.on("text", (who: "user" | "answer", item: string, text: string, final: boolean) => {
  if (final) document.body.append(`${who} ${item}: ${text}`);
});
voice.on("problem", (problem: Problem | null) => document.body.append(problem?.message ?? ""));
const state: VoiceState = voice.state;
const element: ParleyCall | null = document.querySelector("parley-call");
console.assert(state === "idle" && element !== null && typeof keyFrom("/voice-key") === "function");
document.querySelector("button")!.onclick = () => voice.start();
"""

RENDERED = """
const { VoiceClient } = await import("parley-voice");
await import("parley-voice/call");
if (typeof VoiceClient !== "function") throw new Error("no client");
"""


async def test_the_package_installs_from_its_tarball_and_its_types_hold(
    server: Running, place: Elsewhere, browser: Chromium, tmp_path: Path
) -> None:
    project = await asyncio.to_thread(bundled, tmp_path, server.http)
    shutil.copytree(project / "dist", place.folder / "bundled")
    async with browser.page() as page:
        await opened(page, f"{place.origin}/bundled/")
        await page.do("click", "button")
        await talked(page)
        asked = (await page.wire("session.update"))[0]["session"]["audio"]["input"]
        assert asked["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 600}
        assert asked["transcription"] == {"model": "default"}  # the rest of the library's settings stays
        await page.shows("body", "answer ")


def bundled(folder: Path, server: str) -> Path:
    """A fresh project: the tarball installed, types checked, imported where there is no browser, bundled."""
    project, tool = folder / "project", MODULES / ".bin"

    def run(*command: str | Path, cwd: Path = project) -> None:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    project.mkdir()
    run("node", ROOT / "web" / "pack.mjs", folder, cwd=ROOT / "web")
    (tarball,) = folder.glob("*.tgz")
    (project / "package.json").write_text('{"name": "fresh", "private": true, "type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--cache", folder / "cache", tarball)
    (project / "main.ts").write_text(MAIN)
    (project / "env.d.ts").write_text("interface ImportMeta { readonly env: { readonly VITE_SERVER: string } }")
    for resolution in (("esnext", "bundler"), ("nodenext", "nodenext")):
        modules = ("--module", resolution[0], "--moduleResolution", resolution[1])
        strict = ("--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--types", "")
        run(tool / "tsc", *strict, *modules, "main.ts", "env.d.ts")
    run("node", "--input-type=module", "--eval", RENDERED)
    (project / ".env").write_text(f"VITE_SERVER={server}")
    (project / "vite.config.js").write_text('export default { base: "./" }')
    body = "<button>Talk</button><parley-call></parley-call>"
    (project / "index.html").write_text(f'<!doctype html>{body}<script type="module" src="./main.ts"></script>')
    run(tool / "vite", "build", "--logLevel", "error")
    return project
