"""The page in a browser, against a real server: what a newcomer presses, reads and hears."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from app.recording.comparison import conversation_differences, events_of, turns
from app.recording.file import read
from app.recording.replay import replay
from engine.core import StageInfo
from engine.worker.models.script import ScriptThinker
from engine.worker.stage import StageConfig
from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.app.second_model import WORDS, model_of, script_model
from tests.web.browser import AUDIBLE, Chromium, Page
from tests.web.test_states import PASTE, REACHED

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


async def test_a_typed_question_is_answered_aloud_and_in_words(page: Page) -> None:
    await page.ask("say: hello there my friend")
    await page.listen()
    await page.sound()
    await page.shows("#captions .user", "say: hello there my friend")
    await page.shows("#captions .answer", "hello there my friend")
    await page.state("ready")
    await page.hush()
    assert not await page.value("document.getElementById('welcome').checkVisibility()")
    assert await page.value("document.getElementById('question').value") == ""
    assert not await page.value("document.querySelectorAll('#captions [aria-busy]').length")  # a screen reader reads it
    await page.shows("#route", "WebSocket")
    assert await page.errors() == []


def loading(loaded: dict[str, object]) -> str:
    """A script that gives the list of models other descriptions of the model."""
    return (
        "const real = window.fetch; window.fetch = async (...what) => {"
        "  const got = await real(...what);"
        "  if (!String(what[0].url ?? what[0]).endsWith('/models')) return got;"
        f"  const list = await got.json(); Object.assign(list.data[0].parley, {json.dumps(loaded)});"
        "  return Response.json(list); };"
    )


@pytest.mark.parametrize(
    ("loaded", "invitation", "how"),
    [
        ({"examples": ["What can you do?"], "understands_speech": True}, "Talk to your own machine", True),
        ({"examples": [], "understands_speech": True}, "Ask it anything", True),
        ({"examples": [], "understands_speech": False}, "Type anything", False),
    ],
)
async def test_the_page_invites_to_what_the_model_can_do(
    server: Running, browser: Chromium, loaded: dict[str, object], invitation: str, how: bool
) -> None:
    """A language model answers anything; behind ears that only know another model's requests, users should type."""
    async with browser.page() as page:
        await page.before(loading(loaded))
        await page.open(server.http)
        await page.shows("#invitation", invitation)
        assert await page.value("document.getElementById('start').checkVisibility()") is how
        await page.shows("#hint", "Click the microphone" if how else "Type your question")
        closed = bool(loaded["examples"])  # the page then says so, and names the command for more
        assert await page.value("document.getElementById('upgrade').checkVisibility()") is closed


BREAKS = """
window.WebSocket = class extends WebSocket {
  constructor(...where) {
    super(...where);
    this.addEventListener("message", (message) =>
      Object.defineProperty(message, "data", { value: message.data.replaceAll("¶", "\\\\n") }));
  }
};
"""
"""A question is one line: each ¶ in an answer becomes the end of a line."""


async def test_an_answer_in_markdown_is_shown_as_such_and_copied_as_it_was_written(
    server: Running, browser: Chromium
) -> None:
    source = "Some **bold** words¶¶- one¶- <b>two</b>¶¶| a | b |¶|---|---|¶| [x](javascript:y) | `z` |"
    async with browser.page(permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.before(BREAKS)
        await page.open(server.http)
        await page.ask(f"say: {source}")
        await page.until("document.querySelector('.answer .words .next') !== null")
        await page.until("document.querySelector('.answer strong .now')?.textContent === 'bold'")
        await page.state("ready")
        await page.until("document.querySelectorAll('.answer :is(.now, .next)').length === 0")
        texts = (
            "[...document.querySelectorAll('.answer .words :is(strong, li, th, td, code)')].map((o) => o.textContent)"
        )
        assert await page.value(texts) == ["bold", "one", "<b>two</b>", "a", "b", "[x](javascript:y)", "z", "z"]
        assert await page.value("document.querySelectorAll('.answer :is(b:not(.unseen), a)').length") == 0
        await page.do("click", ".answer .meta button:last-child")
        await page.shows(".answer .meta button:last-child", "Copied")
        assert await page.value("navigator.clipboard.readText()") == source.replace("¶", "\n")


async def test_a_model_without_pictures_is_offered_no_camera(server: Running, browser: Chromium) -> None:
    keys = "['camera', 'screen', 'picture'].map((id) => document.getElementById(id).checkVisibility())"
    for abilities, seen in ((["audio", "image", "text"], True), (["audio", "text"], False)):
        async with browser.page() as page:
            await page.before(loading({"abilities": abilities}))
            await page.open(server.http)
            await page.shows("#abilities", "Hears speech and sees pictures." if seen else "Hears speech.")
            assert await page.value(keys) == [seen] * 3
            await page.do("press", "c", on="page.keyboard")
            await page.value(PASTE)
            if seen:
                await page.until("document.querySelector('#preview video') !== null")
            else:
                await page.shows("#notice", "This model takes no pictures")
                assert await page.value("window.asked") == []


async def test_a_phone_gets_the_pages_address_where_it_can_reach_it(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(REACHED)
        await page.open(server.http)
        await page.until("!document.getElementById('open-phone').hidden")
        await page.do("click", "#open-menu")
        await page.do("click", "#open-phone")
        await page.shows("#phone-url", "http://192.168.1.20:8000/")
        assert await page.value("document.querySelector('#phone-code path').getBoundingClientRect().width") > 10
        assert await page.value("document.getElementById('phone-insecure').checkVisibility()")  # no microphone there
    async with browser.page() as page:  # on this machine alone
        await page.open(server.http)
        await page.shows("#abilities", "Hears speech")
        await page.do("click", "#open-menu")
        assert not await page.value("document.getElementById('open-phone').checkVisibility()")


async def test_the_chosen_theme_is_there_before_the_page(server: Running, browser: Chromium) -> None:
    for system, chosen, first in (("dark", "auto", "dark"), ("dark", "light", "light"), ("light", "dark", "dark")):
        async with browser.page(colorScheme=system) as page:
            await page.before(
                "new MutationObserver(() => document.body && (window.first ??= document.documentElement.dataset.theme))"
                ".observe(document, { childList: true, subtree: true })"
            )
            await page.open(server.http, theme=chosen)
            assert await page.value("window.first") == first


async def test_the_models_own_examples_are_questions_until_something_was_said(page: Page) -> None:
    await page.do("click", "#examples button >> nth=0")
    await page.shows("#captions .user", "say: one two three")
    await page.shows("#captions .answer", "three")
    await page.state("ready")
    assert not await page.value("document.getElementById('examples').checkVisibility()")
    await page.do("click", "#open-menu")
    await page.do("click", "#clear")
    await page.do("click", "#examples button >> nth=1")
    await page.shows("#captions > :last-child", "word0")


async def test_the_models_name_and_voices_are_known_before_anything_is_said(page: Page) -> None:
    await page.shows("#model-name", "script")
    options = "[...document.querySelectorAll('#voices label')].map((one) => [one.firstChild.value, one.innerText])"
    assert await page.value(options) == [["tone", "ToneWhistle"]]
    assert await page.value("document.getElementById('model-row').hidden")  # there is no choice
    await page.ask("say: hello")
    await page.shows("#route", "WebSocket")
    await page.shows("#session-model", "script")


async def test_the_user_chooses_among_several_models(browser: Chromium) -> None:
    async with running(script_model(), vad=LoudnessVad, others=[model_of("second")]) as server, browser.page() as page:
        await page.open(server.http)
        await page.shows("#model-name", "script")
        await page.ask("say: hello")
        await page.shows("#captions .answer", "hello")
        await page.do("click", "#open-model")
        await page.do("click", "#models label >> nth=1")
        await page.shows("#model-name", "second")
        await page.shows("#voices", "Alto")
        await page.do("press", "Escape", on="page.keyboard")
        await page.ask("say: hello")
        await page.shows("#captions > :last-child", WORDS)
        await page.shows("#session-model", "second")
        assert await page.errors() == []


async def test_what_leaves_the_machine_is_said_before_anything_is(
    page: Page, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await page.value("document.getElementById('notes').hidden")
    told, describe = "Conversations leave this machine: llm.example gets their text.", ScriptThinker.describe

    def elsewhere(place: StageConfig) -> StageInfo:
        info = describe(place)
        return msgspec.structs.replace(info, facets=msgspec.structs.replace(info.facets, leaving=told))

    monkeypatch.setattr(ScriptThinker, "describe", staticmethod(elsewhere))
    async with running(script_spec(), vad=LoudnessVad) as other, browser.page() as one:
        await one.open(other.http)
        await one.shows("#notes", told)
        assert await one.value("document.getElementById('notes').checkVisibility()")


async def test_the_settings_say_how_soon_it_answers_and_what_its_part_is(page: Page) -> None:
    await page.do("click", "#open-model")
    await page.do("fill", "#instructions", "Answer like a pirate.")
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("click", "#open-settings")
    await page.do("selectOption", "#eagerness", "high")
    await page.do("click", "#settings button.primary")
    await page.ask("say: hello")
    await page.shows("#captions .answer", "hello")
    (asked,) = [event["session"] for event in await page.wire("session.update")]
    assert asked["instructions"] == "Answer like a pirate."
    assert asked["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
    assert asked["audio"]["input"]["turn_detection"]["eagerness"] == "high"
    await page.state("ready")
    await page.do("click", "#open-settings")
    await page.do("selectOption", "#eagerness", "low")
    await page.until("window.wire.filter((event) => event.type === 'session.updated').length === 2")
    changed = (await page.wire("session.updated"))[-1]["session"]
    assert changed["audio"]["input"]["turn_detection"]["eagerness"] == "low"
    assert changed["audio"]["input"]["transcription"] is not None  # one setting changes, the others stay
    assert changed["instructions"] == "Answer like a pirate."
    kept = await page.value("JSON.parse(localStorage.getItem('parley.choices'))")
    assert (kept["eagerness"], kept["instructions"]) == ("low", "Answer like a pirate.")


async def test_only_who_is_heard_is_told_to_interrupt_by_speaking(page: Page) -> None:
    await page.ask("long 60")
    await page.state("speaking")
    await page.shows("#hint", "Press Esc to interrupt")
    await page.do("click", "#talk")
    await page.shows("#hint", "Speak, or press Esc to interrupt")
    await page.do("click", "#talk")
    await page.shows("#hint", "Press Esc to interrupt")


# What the page puts on the clipboard, and the files that it saves: {name, size}.
TAKEN = """
window.taken = [];
Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => void window.taken.push(text) } });
const make = URL.createObjectURL;
URL.createObjectURL = (file) => ((window.file = file), make(file));
HTMLAnchorElement.prototype.click = function () {
  window.file.text().then((text) => window.taken.push([this.download, window.file.size, text.slice(0, 40)]));
};
"""


async def test_a_downloaded_session_is_replayed(server: Running, browser: Chromium, tmp_path: Path) -> None:
    async with browser.page() as page:
        await page.before(TAKEN.replace("text.slice(0, 40)", "text"))
        await page.open(server.http)
        await page.ask("say: an older session")
        await page.shows("#captions .answer", "an older session")
        await page.state("ready")
        await page.do("click", "#open-menu")
        await page.do("click", "#new")
        await page.ask("say: well said")
        await page.shows("#captions .answer", "well said")
        await page.state("ready")
        await page.do("click", "#open-inspector")
        await page.do("click", "#tab-session")
        await page.do("click", "#download-session")
        await page.until("taken.some(([name]) => name === 'session.jsonl')")
        ((name, _, text), *_) = await page.value("taken")
    (tmp_path / name).write_text(text)
    recorded = read(tmp_path / name)
    assert [str(turn) for turn in turns(events_of(recorded.server))] == ["answer: well said"]
    done = await asyncio.to_thread(replay, recorded, script_spec(), LoudnessVad)
    assert conversation_differences(events_of(recorded.server), done.events) == []


async def test_a_conversation_is_copied_saved_cleared_and_begun_anew(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(TAKEN)
        await page.open(server.http)
        await page.ask("say: well said")
        await page.shows("#captions .answer", "well said")
        await page.state("ready")
        for n, button in enumerate(("copy-answer", "copy-all", "save-all", "save-sound"), 1):
            await page.do("click", "#open-menu")
            await page.do("click", f"#{button}")
            await page.until(f"taken.length === {n} && !document.getElementById('menu').matches(':popover-open')")
        taken = await page.value("taken")
        whole = "**You:** say: well said\n\n**Parley:** well said\n"
        assert taken[:3] == ["well said", whole, ["conversation.md", len(whole), whole[:40]]]
        name, size, start = taken[3]
        assert (name, size, start[:4]) == (
            "answer.wav",
            44 + 2 * 24_000 * 4 * 40 // 1000,
            "RIFF",
        )  # two words, four frames
        await page.do("click", "#open-menu")
        await page.do("click", "#clear")
        assert await page.value("document.getElementById('captions').childElementCount") == 0
        await page.ask("said")
        await page.shows("#captions .answer", "I said: well said")  # the model still knows
        await page.do("click", "#open-menu")
        await page.do("click", "#new")
        await page.until("window.wire.filter((event) => event.type === 'session.created').length === 2")
        await page.ask("said")
        await page.shows("#captions .answer", "I said:")
        await page.state("ready")
        assert await page.value("document.querySelector('#captions .answer p').textContent") == "I said:"
        assert await page.value("document.querySelector('#captions .divider')") is None


async def test_what_the_server_refuses_is_told_in_the_users_words(page: Page) -> None:
    await page.ask("say: one")
    await page.state("ready")
    await page.value("""WebSocket.prototype.send = new Proxy(WebSocket.prototype.send, {
      apply: (send, socket, [text]) => {
        Reflect.apply(send, socket, [text.replaceAll('"type":"input_text"', '"type":"no_such_part"')]);
      },
    })""")
    await page.ask("say: two")
    await page.shows("#notice", "The server did not take this")
    notice = await page.value("document.getElementById('notice').textContent")
    assert "content" not in notice
    assert "_" not in notice


async def test_twenty_questions_in_a_second_are_all_kept_and_the_last_is_answered(page: Page) -> None:
    await page.value("""(() => {
      const form = document.getElementById("ask"), question = document.getElementById("question");
      for (let n = 1; n <= 20; n++) {
        question.value = `say: number ${n}`;
        form.requestSubmit();
      }
    })()""")
    await page.shows("#captions > :last-child p", "number 20")
    await page.state("ready")
    assert await page.value("document.querySelectorAll('#captions .user').length") == 20
    assert len([e for e in await page.wire("conversation.item.added") if e["item"]["role"] == "user"]) == 20
    assert await page.value("document.getElementById('notice').hidden")


@pytest.mark.bench  # what the ear hears is looked at every 5 ms
async def test_the_first_sound_is_timed_as_the_ear_hears_it(page: Page) -> None:
    await page.ask("say: one")
    await page.shows("#bars", "Network and playback")
    await page.state("ready")
    await page.listen()
    await page.ask("say: how long did that take")
    await page.sound()
    await page.until("document.getElementById('spread').textContent.includes('of 2')")
    await page.state("ready")
    sent_ms = (await page.wire("response.create"))[-1]["at"]
    heard_ms = next(at for at, peak in await page.heard() if at > sent_ms and peak > AUDIBLE)
    figure = await page.value("document.getElementById('figure').textContent")
    number, unit = figure.split()
    shown_ms = float(number) * (1000 if unit == "s" else 1)
    assert 0 < shown_ms < heard_ms - sent_ms + 100  # the page counts the loudspeaker too, the ear does not
    assert shown_ms > heard_ms - sent_ms - 60  # the ear looks every 5 ms, behind the media stream's own buffer
    parts = await page.value(
        "[...document.querySelectorAll('#bars td:nth-child(2)')].map((td) => parseFloat(td.textContent))"
    )
    assert sum(parts) == pytest.approx(shown_ms, abs=len(parts))


async def test_speech_is_heard_and_answered(page: Page) -> None:
    await page.start()
    await page.value("speak(1.0)")
    await page.state("hearing")
    await page.shows("#captions .user", "seconds")
    await page.listen()
    await page.sound()
    await page.shows("#captions .answer", "I heard")
    await page.shows("#after", "from your last word")
    seconds = float((await page.value("document.querySelector('#captions .user p').textContent")).split()[0])
    assert 1.0 <= seconds <= 2.2  # with the prefix before it and the silence after
    assert (await page.value("asked"))[0]["audio"]["echoCancellation"] is True
    await page.do("click", "#end")
    await page.state("idle")
    assert await page.value("opened.every((track) => track.readyState === 'ended')")
    sent = len(await page.wire("input_audio_buffer.append"))
    await asyncio.sleep(0.2)
    assert len(await page.wire("input_audio_buffer.append")) == sent
    assert await page.errors() == []


async def test_the_users_words_appear_while_they_speak(page: Page) -> None:
    await page.start()
    await page.value("speak(3.0)")
    await page.state("hearing")
    await page.until("document.querySelector('#captions .user.partial p')?.textContent.length > 0")
    assert await page.value("document.getElementById('state').dataset.state") == "hearing"
    await page.shows("#captions .user:not(.partial)", "seconds")
    await page.shows("#captions .answer", "I heard")
    words = "[...document.querySelectorAll('#captions .user p')].map((p) => p.textContent.split(' ').length)"
    assert await page.value(words) == [2]  # what is known in the end stands in the place of what it was taken for


async def test_a_question_typed_while_somebody_speaks_is_no_trouble(page: Page) -> None:
    await page.start()
    await page.value("speak(2.0)")
    await page.state("hearing")
    await page.ask("say: typed meanwhile")
    await page.shows("#captions", "typed meanwhile")
    answers = "[...document.querySelectorAll('#captions .answer')]"
    await page.until(f"{answers}.some((one) => one.textContent.includes('I heard'))")
    await page.state("listening")
    assert await page.value("document.getElementById('notice').hidden")


async def test_a_second_thought_while_the_browser_asks_leaves_the_microphone_off(page: Page) -> None:
    await page.value("""{
      const open = navigator.mediaDevices.getUserMedia;
      navigator.mediaDevices.getUserMedia = async (constraints) => {
        await new Promise((resolve) => setTimeout(resolve, 1500));
        return open(constraints);
      };
    }""")
    await page.do("click", "#talk")
    await page.do("click", "#end")
    await page.until("opened.length === 1 && opened[0].readyState === 'ended'")
    await page.state("idle")
    assert await page.wire("input_audio_buffer.append") == []


async def test_a_muted_microphone_is_not_heard(page: Page) -> None:
    await page.start()
    await page.do("click", "#talk")
    await page.state("muted")
    await page.value("speak(0.8)")
    await asyncio.sleep(0.5)
    assert await page.wire("input_audio_buffer.speech_started") == []
    assert await page.value("opened[0].readyState") == "live"
    await page.do("click", "#talk")
    await page.state("listening")
    await page.value("speak(0.8)")
    await page.shows("#captions .answer", "I heard")


async def speak_while_held(page: Page) -> None:
    """Hold the key, speak, and let go once the server has some of it."""
    await page.do("down", "Space", on="page.keyboard")
    await page.state("hearing")
    await page.value("speak(0.7)")
    sent = len(await page.wire("input_audio_buffer.append"))
    await page.until(f"wire.filter((e) => e.type === 'input_audio_buffer.append').length > {sent} + 10")
    await page.do("up", "Space", on="page.keyboard")


async def test_push_to_talk_answers_what_was_said_while_the_key_was_down(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(server.http, handsFree=False)
        await page.do("down", "Space", on="page.keyboard")
        await page.until("window.wire.some((event) => event.type === 'session.updated')")
        await page.do("up", "Space", on="page.keyboard")
        await page.state("ready")
        await page.until("opened.length === 1 && !opened[0].enabled")
        await speak_while_held(page)
        # Where the first hold was long enough for a sound, that has an answer of its own, which this one interrupts.
        answers = "[...document.querySelectorAll('#captions .answer')]"
        await page.until(f"{answers}.some((answer) => answer.textContent.includes('I heard'))")
        assert await page.wire("input_audio_buffer.speech_started") == []
        late = ("input_audio_buffer_commit_empty", "response_cancel_not_active")
        assert [e for e in await page.wire("error") if e["error"]["code"] not in late] == []


async def test_a_key_that_is_held_and_nothing_said_is_told(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(server.http, handsFree=False)
        assert await page.value("document.querySelector('#welcome .held').checkVisibility()")
        assert not await page.value("document.querySelector('#welcome .hands-free').checkVisibility()")
        await page.shows("#start", "Hold to talk")
        await page.value("void (window.opens = navigator.mediaDevices.getUserMedia)")
        await page.value("void (navigator.mediaDevices.getUserMedia = () => new Promise((open) => (window.go = open)))")
        await page.do("down", "Space", on="page.keyboard")
        await page.until("window.wire.some((event) => event.type === 'session.updated') && window.go")
        await page.do("up", "Space", on="page.keyboard")
        await page.shows("#notice", "Nothing was heard: hold it down while you speak.")
        await page.value("void (navigator.mediaDevices.getUserMedia = opens)")
        await page.value("void opens.call(navigator.mediaDevices, { audio: true }).then(go)")
        await page.until("opened.length === 1")
        await speak_while_held(page)
        await page.shows("#captions .answer", "I heard")


async def test_another_microphone_takes_over_in_mid_conversation(page: Page) -> None:
    await page.start()
    await page.do("click", "#open-microphones")
    await page.until("document.querySelectorAll('#microphones input').length === 3")
    await page.do("check", "#microphones [value=second]")
    await page.until("opened.length === 2 && opened[0].readyState === 'ended'")
    await page.value("speak(0.8)")
    await page.until("document.getElementById('meter').getAttribute('aria-valuenow') > 20")
    await page.shows("#captions .answer", "I heard")
    assert (await page.value("asked"))[1]["audio"]["deviceId"] == {"exact": "second"}
    assert len(await page.wire("session.created")) == 1


@pytest.mark.bench  # a browser that gets no processor goes on with the sound it has
async def test_speaking_over_the_answer_silences_it(page: Page) -> None:
    await page.start()
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    await asyncio.sleep(0.8)
    await page.value("speak(0.8, 0.5)")
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    await page.until("document.querySelector('#captions .answer.interrupted')")
    await page.until("document.querySelector('#captions > :last-child').textContent.includes('I heard')")
    asked_ms = (await page.wire("response.create"))[0]["at"]
    began_ms = next(e["at"] for e in await page.wire("input_audio_buffer.speech_started") if e["at"] > asked_ms)
    heard = [(at, peak) for at, peak in await page.heard() if at > asked_ms]
    came_ms = (await page.wire("response.output_audio.delta"))[0]["at"]
    last_ms = max(at for at, peak in heard if peak > AUDIBLE and at < began_ms + 450)
    assert await page.sounded_ms(began_ms, began_ms + 450) < 100
    cut = (await page.wire("conversation.item.truncate"))[0]
    sounding_ms = await page.sounded_ms(asked_ms, last_ms)
    assert sounding_ms - 300 < cut["audio_end_ms"] < began_ms - came_ms + 50
    interrupted = next(e["response"] for e in await page.wire("response.done") if e["at"] > began_ms)
    assert interrupted["status_details"]["reason"] == "turn_detected"
    words = await page.value("document.querySelector('#captions .interrupted p').firstChild.textContent")
    frames = cut["audio_end_ms"] / 40
    assert abs(len(words.split()) - frames / 2) <= 2  # a word is two frames here
    assert await page.wire("error") == []


@pytest.mark.parametrize("how", ["escape", "button"])
async def test_stop_ends_the_answer(page: Page, how: str) -> None:
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    if how == "escape":
        await page.do("press", "Escape", on="page.keyboard")
    else:
        await page.do("click", "#stop")
    stopped_ms = await page.value("performance.now()")
    await page.state("ready")
    await page.hush()
    assert await page.sounded_ms(stopped_ms, await page.value("performance.now()")) < 100
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    assert await page.value("document.getElementById('stop').hidden")
    await page.ask("say: and on we go")
    await page.shows("#captions", "and on we go")
    await page.sound()
    assert await page.wire("error") == []


async def test_a_second_stop_at_once_says_nothing_more(page: Page) -> None:
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    await page.value("""[1, 2].forEach(() => document.body.dispatchEvent(
      new KeyboardEvent("keydown", { key: "Escape", bubbles: true })))""")
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    await page.state("ready")
    await page.ask("say: and on we go")
    await page.shows("#captions", "and on we go")
    assert len(await page.wire("conversation.item.truncate")) == 1


async def test_an_answer_is_stopped_while_its_sound_is_late(page: Page) -> None:
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    await page.value("window.starve = true")
    await page.hush()
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("press", "Escape", on="page.keyboard")
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    await page.state("ready")
    await page.ask("say: nothing of this is cut")
    await page.shows("#captions", "nothing of this is cut")
    await page.do("press", "Escape", on="page.keyboard")
    await page.state("ready")
    assert len(await page.wire("conversation.item.truncate")) == 1  # of the second answer no sound came
    assert await page.value("document.getElementById('notice').hidden")


async def test_an_answer_is_stopped_that_is_complete_and_never_sounded(page: Page) -> None:
    await page.value("window.starve = true")
    await page.ask("say: nobody hears this")
    await page.until("window.wire.some((event) => event.type === 'response.done')")
    await page.state("thinking")
    assert not await page.value("document.getElementById('stop').hidden")
    await page.do("press", "Escape", on="page.keyboard")
    await page.state("ready")
    assert await page.value("document.getElementById('stop').hidden")
    assert await page.wire("conversation.item.truncate") == []
    await page.value("window.starve = false")
    await page.listen()
    await page.ask("say: everybody hears this")
    await page.sound()
    await page.state("ready")


async def test_a_new_question_replaces_the_answer(page: Page) -> None:
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    await page.ask("say: the second one")
    await page.ask("say: the third one")
    await page.until("document.querySelectorAll('#captions .user').length === 3")
    await page.shows("#captions > :last-child p", "the third one")
    await page.state("ready")
    await page.shows("#bars", "Network and playback")
    refused = {event["error"]["code"] for event in await page.wire("error")}
    assert refused <= {"response_cancel_not_active"}  # an answer may end while the page asks for its end


async def test_a_failed_answer_is_named_and_the_next_one_works(page: Page) -> None:
    await page.ask("fail")
    await page.shows("#notice", "The answer failed")
    await page.state("ready")
    await page.ask("say: better")
    await page.shows("#captions", "better")
    await page.until("document.getElementById('notice').hidden")


async def test_the_camera_is_shown_to_the_model_and_to_its_owner(page: Page) -> None:
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video')?.videoWidth > 0")
    await page.ask("say: nice")
    await page.until("document.querySelector('#captions .user canvas') !== null")
    await page.shows("#captions .answer", "nice")
    content = (await page.wire("conversation.item.create"))[0]["item"]["content"]
    assert content[0]["image_url"].startswith("data:image/jpeg;base64,")
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video') === null")
    assert await page.wire("error") == []


async def test_the_screen_is_shared_and_shown(page: Page) -> None:
    await page.value("""void (navigator.mediaDevices.getDisplayMedia = async () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 200 });
      const context = canvas.getContext("2d");
      setInterval(() => context.fillRect(Math.random() * 320, 0, 9, 200), 50);
      return canvas.captureStream(10);
    })""")
    await page.do("click", "#screen")
    await page.until("document.querySelector('#preview video')?.videoWidth === 320")
    assert await page.value("document.getElementById('screen').getAttribute('aria-pressed')") == "true"
    await page.ask("say: a screen")
    await page.until("document.querySelector('#captions .user canvas') !== null")
    await page.shows("#captions .answer", "a screen")
    await page.do("click", "#screen")
    await page.until("document.querySelector('#preview video') === null")


async def test_the_theme_key_switches_and_the_browser_keeps_the_choice(server: Running, browser: Chromium) -> None:
    async with browser.page(colorScheme="light") as page:
        await page.open(server.http)
        await page.do("click", "#theme")
        assert await page.value("document.documentElement.dataset.theme") == "dark"
        assert await page.value("JSON.parse(localStorage.getItem('parley.choices')).theme") == "dark"
        assert await page.value("document.getElementById('themes').value") == "dark"


async def test_the_page_can_be_installed(page: Page) -> None:
    manifest = await page.value("fetch(document.querySelector('link[rel=manifest]').href).then((got) => got.json())")
    assert manifest["display"] == "standalone"
    assert manifest["icons"]
    for icon in manifest["icons"]:
        assert await page.value(f"fetch({json.dumps(icon['src'])}).then((got) => got.ok)")


async def test_a_pasted_picture_goes_with_the_question(page: Page) -> None:
    await page.value("""(async () => {
      const canvas = new OffscreenCanvas(2000, 1500);
      canvas.getContext("2d").fillRect(0, 0, 900, 700);
      const file = new File([await canvas.convertToBlob()], "a.png", { type: "image/png" });
      const data = new DataTransfer();
      data.items.add(file);
      document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
    })()""")
    await page.until("!document.getElementById('attached').hidden")
    await page.ask("say: a black corner")
    await page.shows("#captions .answer", "a black corner")
    assert await page.value("document.getElementById('attached').hidden")
    assert await page.value("document.querySelector('#captions .user canvas').getAttribute('role')") == "img"
    image = (await page.wire("conversation.item.create"))[0]["item"]["content"][0]
    assert image["type"] == "input_image"
    assert await page.wire("error") == []


async def test_the_log_shows_what_goes_over_the_wire(page: Page) -> None:
    await page.do("click", "#open-inspector")
    await page.do("click", "#tab-events")
    await page.ask("long 30")
    await page.shows("#events", "response.done")
    shown = "[...document.querySelectorAll('#events li')].filter((line) => line.checkVisibility())"
    names = f"{shown}.map((line) => line.querySelector('.name').textContent)"
    found = await page.value(names)
    for folded in ("response.output_audio.delta", "response.output_audio_transcript.delta"):
        assert found.count(folded) == 1, found
        sent = len(await page.wire(folded))
        count = f"{shown}.find((line) => line.textContent.includes('{folded}')).querySelector('.count').textContent"
        assert await page.value(count) == f"× {sent}"
    await page.do("click", "#kinds button >> text=Turns")
    turns = await page.value(names)
    assert "response.done" in turns
    assert set(turns) < set(found)
    await page.do("click", "#kinds button >> text=All")
    await page.do("fill", "#filter", "session.")
    assert sorted(await page.value(names)) == ["session.created", "session.update", "session.updated"]
    await page.do("click", "#events li:not([hidden]) button >> nth=1")
    opened = json.loads(await page.value("document.querySelector('#events pre').textContent"))
    assert opened["type"] == "session.update"
    assert opened["session"]["output_modalities"] == ["audio"]


async def test_the_screen_stays_on_in_a_call_also_after_the_page_was_hidden(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(
            "window.locks = 0;"
            "const request = async () => {"
            "  if (document.visibilityState === 'hidden') throw new Error('hidden');"
            "  window.locks++;"
            "  return { release: async () => void window.locks-- };"
            "};"
            "Object.defineProperty(navigator, 'wakeLock', { value: { request } });"
            "window.turn = (state) => {"
            "  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });"
            "  document.dispatchEvent(new Event('visibilitychange'));"
            "};"
        )
        await page.open(server.http)
        await page.start()
        await page.until("window.locks === 1")
        await page.value("window.turn('hidden')")
        await page.until("window.locks === 0")
        await page.do("click", "#talk")  # a change while the page is hidden: no lock can be had
        await page.state("muted")
        await page.value("window.turn('visible')")
        await page.until("window.locks === 1")
        await page.do("click", "#end")
        await page.until("window.locks === 0")


async def test_an_answer_and_a_voice_are_played_again_and_then_let_go(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(
            "window.played = [];"
            "window.letGo = 0;"
            "const begin = AudioBufferSourceNode.prototype.start;"
            "AudioBufferSourceNode.prototype.start = function () {"
            "  window.played.push(this.buffer.duration);"
            "  begin.call(this);"
            "};"
            "const end = AudioContext.prototype.close;"
            "AudioContext.prototype.close = function () { window.letGo++; return end.call(this); };"
        )
        await page.open(server.http)
        await page.ask("say: once more")
        await page.shows("#captions .answer", "once more")
        await page.state("ready")
        await page.do("click", "#captions [title='Play again']")
        await page.until("window.played.length === 1 && window.letGo === 1")
        await page.do("click", "#open-model")
        await page.do("click", "#voices .choice button >> nth=0")
        await page.until("window.played.length === 2 && window.letGo === 2")
        assert min(await page.value("window.played")) > 0


async def test_an_inspector_that_is_opened_again_shows_the_newest_event(page: Page) -> None:
    below = "((list) => list.scrollHeight - list.scrollTop - list.clientHeight)(document.getElementById('events'))"
    await page.do("click", "#open-inspector")
    await page.do("click", "#tab-events")
    for n in range(2):
        await page.ask(f"say: answer {n}")
        await page.shows("#captions > :last-child", f"answer {n}")
        await page.state("ready")
    assert await page.value("document.getElementById('events').scrollTop") > 0
    await page.do("click", "#close-inspector")
    await page.ask("say: unseen")
    await page.shows("#captions > :last-child", "unseen")
    await page.state("ready")
    await page.do("click", "#open-inspector")
    assert await page.value(below) < 5


async def test_a_copy_button_keeps_its_name_when_it_is_clicked_twice(page: Page) -> None:
    name = "document.getElementById('copy-snippet').textContent"
    assert await page.value(name) == "Copy"
    await page.value("document.getElementById('copy-snippet').click()")
    await page.until(f"{name} !== 'Copy'")
    await page.value("document.getElementById('copy-snippet').click()")
    await page.do("waitForTimeout", 2_500)  # both clicks' words are over
    assert await page.value(name) == "Copy"


async def test_a_call_of_the_pages_tool_is_a_card_in_the_script_and_in_the_inspector(page: Page) -> None:
    await page.shows("#offered", "set_timer")
    await page.ask('tool set_timer {"minutes": 10} ; set_timer {"minutes": -1}')
    await page.shows("#captions .answer", "The tool says")
    cards = "[...document.querySelectorAll('#captions .tool')]"
    assert await page.value(f"{cards}.map((card) => card.dataset.status)") == ["done", "failed"]
    done, failed = await page.value(f"{cards}.map((card) => card.textContent)")
    for part in ("set_timer", "minutes: 10", "started: true", "✓", " ms"):
        assert part in done
    assert "minutes must be above 0" in failed
    assert await page.value("document.querySelectorAll('#calls .tool').length") == 2
    await page.shows("#notice", "The tool set_timer failed")


async def test_without_leave_the_model_gets_no_tool_of_the_page(page: Page) -> None:
    await page.shows("#offered", "set_timer")
    await page.do("click", "#open-settings")
    await page.do("uncheck", "#page-tools")
    await page.do("press", "Escape", on="page.keyboard")
    await page.ask("say: no tools")
    await page.shows("#captions .answer", "no tools")
    (asked,) = [event["session"] for event in await page.wire("session.update")]
    assert not asked.get("tools")


async def test_a_reload_goes_on_with_the_conversation(page: Page) -> None:
    await page.ask("say: remember me")
    await page.shows("#captions .answer", "remember me")
    await page.state("ready")
    await page.do("reload")
    await page.shows("#offered", "set_timer")  # a session does not say what its model can do
    await page.state("ready")
    assert await page.value("[...document.querySelectorAll('#captions div p')].map((p) => p.textContent)") == [
        "say: remember me",
        "remember me",
    ]
    assert await page.wire("session.created") == []
    await page.ask("say: still here")
    await page.shows("#captions > :last-child", "still here")
    assert await page.value("document.querySelector('#captions .divider')") is None
    await page.do("click", "#end")
    await page.do("reload")
    await page.state("idle")
    await page.shows("#captions .divider", "a new conversation begins")
