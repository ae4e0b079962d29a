"""What goes wrong in a page of another origin gets one sentence, or is got round: keys, tools, settings, lost lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.app.rig import ROOT, LoudnessVad, Running, keys_file, running, script_spec
from tests.web.browser import MICROPHONE, WIRE, Chromium, Page
from tests.web.elsewhere import Elsewhere, elsewhere
from tests.web.other_origin import place
from tests.web.test_trouble import relay

__all__ = ["place"]

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

KEY = "a key of sixteen letters".replace(" ", "-")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(place: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """It asks for a key, and takes pages of the other origin; that origin's own server has short-lived keys."""
    keys = keys_file(tmp_path_factory.mktemp("keys"), f"shop: {KEY}")
    async with running(script_spec(keys_file=keys, allowed_origins=[place.origin]), vad=LoudnessVad) as one:
        place.key = lambda: secret(one)
        yield one


def secret(server: Running) -> str:
    """What a page's own backend answers: the five lines of the guide."""
    session = {"session": {"instructions": "You run the kitchen."}}
    url, headers = f"{server.http}/v1/realtime/client_secrets", {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(url, headers=headers, json=session)
    return json.dumps({"value": answer.raise_for_status().json()["value"]})


async def opened(page: Page, place: Elsewhere, home: str, options: str) -> None:
    """A page with a client in ``voice``, its final texts in ``texts``, its problems in ``problems``."""
    script = f"""
      import {{ VoiceClient, keyFrom }} from "{home}/voice.js";
      [window.VoiceClient, window.keyFrom, window.texts, window.problems] = [VoiceClient, keyFrom, [], []];
      window.voice = new VoiceClient({options});
      voice.on("text", (who, item, text, final) => final && texts.push(`${{who}}: ${{text}}`));
      voice.on("problem", (one) => one && problems.push(`${{one.code}}: ${{one.message}} ${{one.cause ?? ""}}`));
    """
    for each in (MICROPHONE, WIRE):
        await page.before(each)
    await page.do("goto", place.page("trouble.html", f'<!doctype html><script type="module">{script}</script>'))
    await page.until("window.voice")


async def test_tools_that_fail_settings_that_change_and_events_of_ones_own(
    server: Running, place: Elsewhere, browser: Chromium
) -> None:
    async with browser.page() as page:
        await opened(page, place, server.http, '{ key: keyFrom("/voice-key") }')
        await page.value("""{
          voice.tool("broken", {}, () => { throw new Error("the oven is cold"); });
          const never = (_, { signal }) => new Promise(() => (signal.onabort = () => (window.aborted = true)));
          voice.tool("endless", {}, never, { timeout_ms: 200 });
          voice.tool("double", { properties: { n: { type: "number" } } }, async ({ n }) => 2 * n);
          const content = [{ type: "input_text", text: "tool broken {}" }];
          voice.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
          voice.send({ type: "response.create" });
          voice.connect();
        }""")
        await page.until(
            "texts.some((text) => text.startsWith('answer: The tool says') && text.includes('the oven is cold'))"
        )
        await page.value("voice.ask('tool endless {}')")
        await page.until("texts.some((text) => text.includes('no result within 0.2 s'))")
        assert await page.value("window.aborted")
        await page.value('voice.ask(\'tool double {"n": 21} ; double {"n": 4}\')')
        await page.until("texts.at(-1).startsWith('answer: The tool says')")
        results = [
            event["item"]["output"]
            for event in await page.wire("conversation.item.create")
            if "output" in event["item"]
        ]
        assert sorted(results[2:]) == ["42", "8"]
        assert len(await page.wire("response.create")) == 6  # one for each question, one for each question's results
        assert [problem.split(":")[0] for problem in await page.value("problems")] == ["tool", "tool"]

        late = "voice.tool('late', {description: 'Comes late.'}, () => 'at last')"
        await page.value(
            f"{{ {late}; voice.configure({{ audio: {{ input: {{ noise_reduction: {{ type: 'far_field' }} }} }} }}); }}"
        )
        changed = "window.wire.filter(({type}) => type === 'session.updated')"
        await page.until(f"{changed}.at(-1).session.audio.input.noise_reduction?.type === 'far_field'")
        session = (await page.value(changed))[-1]["session"]
        assert session["instructions"] == "You run the kitchen."  # the key's
        assert session["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
        assert [tool["name"] for tool in session["tools"]] == ["broken", "endless", "double", "late"]
        await page.value("voice.ask('tool late {}')")
        await page.until("texts.at(-1).includes('at last')")
        assert await page.errors() == []
        await page.value("voice.end()")
        await server.empty()


async def test_each_answer_ends_in_one_final_text_an_interrupted_one_in_what_was_heard(
    server: Running, place: Elsewhere, browser: Chromium
) -> None:
    async with browser.page() as page:
        await opened(page, place, server.http, f'{{ key: "{KEY}" }}')
        await page.value("voice.ask('say: a whole answer')")
        await page.until("texts.includes('answer: a whole answer')")
        await page.value(
            "voice.on('text', (who, item, text, final) => !final && text.includes('word3') && voice.stop())"
        )
        await page.value("voice.ask('long 200')")
        await page.until("texts.some((text) => text.startsWith('answer: word0'))")
        await page.value("voice.ask('say: and on')")
        await page.until("texts.includes('answer: and on')")
        finals = [text for text in await page.value("texts") if text.startswith("answer")]
        assert len(finals) == 3
        assert 3 <= len(finals[1].split()) < 100
        await page.value("voice.end()")


async def test_a_wrong_key_no_key_and_a_refused_setting_are_each_one_sentence(
    server: Running, place: Elsewhere, browser: Chromium
) -> None:
    good, mistaken = f'key: "{KEY}"', "session: { audio: { input: { turn_detection: { type: 'psychic' } } } }"
    cases = {
        '{ key: "a-wrong-key-of-some-length" }': "key: The server does not take this key",
        "{}": "key: This server needs a key",
        f"{{ {good}, {mistaken} }}": "refused: The server did not take the new settings: choose others. Invalid",
        '{ key: keyFrom("/nowhere") }': "no-key: This page got no key for the voice server (/nowhere answered 500)",
    }
    for options, expected in cases.items():
        async with browser.page() as page:
            await opened(page, place, server.http, options)
            await page.value("voice.connect()")
            await page.until(f"problems[0]?.startsWith({json.dumps(expected)})")
            if "nowhere" not in options:  # else it is tried again
                await page.until("voice.state === 'idle'")
                assert len(await page.value("problems")) == 1
            await page.value("voice.end()")


async def test_a_page_of_an_origin_that_is_not_named_is_told_which_setting(
    server: Running, browser: Chromium, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "web" / "dist", tmp_path / "copied")
    with elsewhere(tmp_path / "copied") as stranger:
        async with browser.page() as page:
            await opened(page, stranger, stranger.origin, f'{{ server: "{server.http}", key: "{KEY}" }}')
            await page.value("voice.connect()")
            await page.until("problems.length === 1")
            (problem,) = await page.value("problems")
            assert problem.startswith("origin: ")
            assert stranger.origin in problem
            assert "server.allowed_origins" in problem


async def test_two_elements_of_a_page_talk_one_at_a_time(server: Running, place: Elsewhere, browser: Chromium) -> None:
    html = f"""<!doctype html><script type="module" src="{server.http}/call.js"></script>
      <parley-call id="one" key-from="/voice-key"></parley-call>
      <parley-call id="two" key="wrong-key-of-some-length"></parley-call>"""
    async with browser.page() as page:
        await page.before(MICROPHONE)
        await page.do("goto", place.page("two.html", html))
        await page.do("click", "#two button[part=button]")
        problem = "document.querySelector('#two').shadowRoot.querySelector('[role=alert]').textContent"
        await page.until(f"{problem}.includes('does not take this key')")
        await page.do("click", "#one button[part=button]")
        await page.do("waitForSelector", "#one[data-state=listening]")
        await page.value("speak(0.6)")
        await page.until(
            "document.querySelector('#one').shadowRoot.querySelector('[part=words]').textContent.includes('I heard')"
        )
        await page.do("click", "#two button[part=button]")
        await page.do("waitForSelector", "#one[data-state=idle]")
        assert await page.value("opened[0].readyState") == "ended"
        await server.empty()


async def test_a_key_that_has_expired_is_asked_for_anew(server: Running, place: Elsewhere, browser: Chromium) -> None:
    """The last one here: the session that it loses waits 20 s for its client, and so would the others for its end."""
    async with browser.page() as page:
        async with relay(server.port) as port:
            await opened(page, place, f"http://127.0.0.1:{port}", '{ key: keyFrom("/voice-key") }')
            await page.value("voice.ask('say: one')")
            await page.until("texts.includes('answer: one')")
        await page.until("voice.state === 'lost'")
        secrets = server.service.secrets
        for one in list(secrets._alive.values()):
            secrets.withdraw(one.maker)
        async with relay(server.port, port):
            await page.value("voice.ask('say: two')")
            await page.until("texts.includes('answer: two')")
        assert {problem.split(":")[0] for problem in await page.value("problems")} <= {"lost", "unreachable", "no-key"}
        await page.value("voice.end()")
