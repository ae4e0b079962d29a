"""Frames of the held-out dialogues, written by hand; training never sees their turns."""

# ruff: noqa: E501 - one dialogue a line
# fmt: off

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.training.nano import scenery
from engine.training.nano.lexicon import DAYS, SPOKEN_NAMES, dictionary_words, is_held_out_pair, is_held_out_word
from engine.training.nano.looking import ABOUT_ONE, PRONOUN, QUESTIONS
from engine.training.nano.turns import expand
from engine.worker.models.nano import seeing
from engine.worker.models.nano.sayings import HAND_OVER
from engine.worker.models.nano.scene import COLOURS, SHAPES, UNSURE, Scene
from engine.worker.models.nano.seeing import Wanted, looked

Said = dict[str, Any]
Dialogue = tuple[list[str], list[Said]]
"""The names of its tools, and its turns."""

def says(text: str, answer: str, scene: Scene | None = None) -> Said:
    turn: Said = {"text": text, "expect": {"kind": "says", "text": answer}}
    return turn | ({"scene": str(scene)} if scene else {})


def expects(text: str, kind: str, **expect: Any) -> Said:
    return {"text": text, "expect": {"kind": kind, **expect}}


def calls(text: str, name: str, result: str = "", told: str = "", **arguments: Any) -> Said:
    """Return a call; ``told`` is nano's answer after the tool has returned ``result``."""
    turn = expects(text, "call", name=name, arguments=arguments)
    return turn | ({"result": result, "told": told} if told else {})


def fill(rng: random.Random, *frames: str, **values: object) -> str:
    text = expand(rng, rng.choice(frames))
    for slot, value in values.items():
        text = text.replace("{" + slot + "}", str(value))
    return text


def held_out(rng: random.Random, make: Callable[[], Scene], clear: bool = True) -> Scene:
    while not scenery.is_held_out(scene := make()) or (clear and not scene.light):
        pass
    return scene


def a_scene(rng: random.Random, groups: int = 1, frames: int = 1) -> Scene:
    """Return a held-out scene with the given number of groups, all recognized with certainty."""
    while True:
        scene = held_out(rng, lambda: scenery.sample_scene(rng, frames))
        if len(scene.groups) == groups and not any(UNSURE in (g.colour, g.shape) for g in scene.groups):
            return scene


def of(scene: Scene, rng: random.Random) -> Wanted:
    return Wanted("", rng.choice(scene.groups).shape)


def asked(kind: str, scene: Scene, wanted: Wanted) -> str:
    return looked(f"{PRONOUN.get(kind, kind)} {wanted.colour} {wanted.shape}", (scene,))


def scene_question(rng: random.Random, kind: str) -> Dialogue:
    """Return a question as in training, about a scene that training never shows."""
    scene = held_out(rng, lambda: scenery.sample_scene(rng, rng.choice((1, 2))))
    wanted = of(scene, rng) if scene.groups and rng.random() < 0.75 else Wanted(rng.choice(COLOURS), rng.choice(SHAPES))
    if wanted.shape == UNSURE:
        wanted = replace(wanted, shape="star")
    text = fill(rng, *QUESTIONS[kind], one=wanted.one, many=wanted.many)
    answer = asked(kind, scene, wanted if kind in ABOUT_ONE else Wanted())
    return [], [says(text, answer, scene)]


def look(rng: random.Random) -> Dialogue:
    """Return one or two questions about one picture."""
    scene = a_scene(rng, rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 2)))
    want = of(scene, rng)
    asked = {
        "describe": says(fill(rng, "tell me please what is in front of your camera", "so tell me what you can see right now", "what kind of picture do you see", "would you describe the picture to me"), seeing.describe(scene), scene),
        "colour": says(fill(rng, "would you tell me what color the {one} has", "the {one} there, which color is it", "do you see which color the {one} has", one=want.one), seeing.colour_of(scene, want), scene),
        "count": says(fill(rng, "can you tell me how many {many} i have here", "how many {many} are on the table", "please tell me the number of {many}", many=want.many), seeing.how_many(scene, want), scene),
        "where": says(fill(rng, "where exactly is the {one}", "could you tell me where the {one} is", "in which place is the {one}", one=want.one), seeing.where_is(scene, want), scene),
        "there": says(fill(rng, "is there perhaps a {one} in the picture", "do you happen to see a {one}", "can you find a {one} in there", one=want.one), seeing.is_there(scene, want), scene),
        "read": says(fill(rng, "please read out what is on the card", "which letters or numbers do you see there", "what is printed on this paper"), seeing.what_is_written(scene), scene),
        "moving": says(fill(rng, "is the thing in the picture moving", "tell me if it is moving"), seeing.is_moving(scene), scene),
        "dark": says(fill(rng, "would you say it is dark in this room", "is it a bit dark in my room"), seeing.is_dark(scene), scene),
    }  # fmt: skip
    first, second = rng.sample(list(asked), 2)
    later = {key: value for key, value in asked[second].items() if key != "scene"}
    return [], [asked[first]] if rng.random() < 0.4 else [asked[first], later]


def look_on(rng: random.Random) -> Dialogue:
    """Return a question about one thing, then about another thing or picture."""
    scene = a_scene(rng, rng.choice((2, 2, 3)))
    one, two = (Wanted("", g.shape) for g in rng.sample(scene.groups, 2))
    kind = rng.choice(ABOUT_ONE)
    first = {"color": "please name the color of the {one} for me", "count": "can you count all the {many} there", "where": "where in the picture is the {one}", "there": "tell me if there is a {one}"}
    turns = [says(fill(rng, first[kind], one=one.one, many=one.many), asked(kind, scene, one), scene)]
    if rng.random() < 0.6:
        name = two.many if kind == "count" else two.one
        follow = fill(rng, "and what is it for the {x}", "and now the same for the {x}", "and the {x}", "sorry i wanted to ask about the {x}", "what about the {x}", "no, not that, i meant the {x}", x=name)
        return [], [*turns, says(follow, asked(kind, scene, two))]
    unchanged = rng.random() < 0.15
    later = scene if unchanged else held_out(rng, lambda: scenery.changed(rng, scenery.changed(rng, scene)) if rng.random() < 0.3 else scenery.changed(rng, scene))
    while not unchanged and later == scene:
        later = held_out(rng, lambda: scenery.changed(rng, scene))
    if rng.random() < 0.5:
        return [], [*turns, says(fill(rng, "what is different in this picture", "tell me what changed in the picture", "do you notice what has changed"), seeing.what_changed(scene, later), later)]
    return [], [*turns, says(fill(rng, "look again, is the {one} still there", "do you see the {one} still", one=one.one), seeing.still_there(scene, later, one), later)]


def blind(rng: random.Random) -> Dialogue:
    """Return a question without an answer: no picture, nothing recognizable, nothing of the kind, or beyond nano's
    vision.
    """
    kind = rng.choice(("none", "unclear", "beyond", "aside"))
    text = fill(rng, "what do you see in this photo of mine", "describe my picture to me please", "what can you see through the camera")
    if kind == "none":
        return [], [expects(text, "see")]
    if kind == "unclear":
        return [], [says(text, seeing.NOTHING_CLEAR, Scene())]
    scene = a_scene(rng)
    if kind == "beyond":
        return [], [says(fill(rng, "who is the person in this picture", "how many people do you see here", "what is the woman wearing", "is there a dog in my room"), seeing.BEYOND, scene)]
    a, b = pair(rng)
    return [], [expects(f"tell me what {a} plus {b} is", "number", value=a + b) | {"scene": str(scene)}, says("and what do you see there", seeing.describe(scene))]


def pair(rng: random.Random) -> tuple[int, int]:
    while not is_held_out_pair(a := rng.randint(10, 60), b := rng.randint(2, 39)):
        pass
    return a, b


def sums(rng: random.Random) -> Dialogue:
    a, b = pair(rng)
    n = rng.randint(2, 30)
    first = expects(fill(rng, "what do you get for {a} plus {b}", "could you work out {a} plus {b}", a=a, b=b), "number", value=a + b)
    way = rng.choice(("more", "less", "again"))
    if way == "more" and a + b < 100:
        return [], [first, expects(fill(rng, "and if i add {n} to that", "now please add {n} to it", "and {n} more on top of that", n=n), "number", value=a + b + n)]
    if way == "less" and a + b < 100:
        return [], [first, expects(fill(rng, "and if i take away {n}", "now please subtract {n} from it", "now take {n} from that again", n=n), "number", value=a + b - n)]
    c, d = pair(rng)
    return [], [first, expects(fill(rng, "and what would {c} minus {d} be", "and how much is then {c} minus {d}", c=c, d=d), "number", value=c - d)]


def days(rng: random.Random) -> Dialogue:
    i = rng.randrange(7)
    day, after, second = (DAYS[(i + k) % 7] for k in range(3))
    first = expects(fill(rng, "do you know which day comes after {day}", "which day do we have after {day}", day=day), "calendar", name=after)
    if rng.random() < 0.5:
        return [], [first, expects(fill(rng, "and which day comes after that one", "and what is the one after that"), "calendar", name=second)]
    other = DAYS[(i + 3) % 7]
    return [], [first, expects(fill(rng, "and which one comes after {other}", "sorry i was thinking of {other}", "i am sorry i meant {other}", other=other), "calendar", name=DAYS[(i + 4) % 7])]


def words(rng: random.Random) -> Dialogue:
    one, two = (rng.choice([w for w in dictionary_words() if is_held_out_word(w) and 3 <= len(w) <= 9]) for _ in range(2))
    first = expects(fill(rng, "would you please spell {one} for me", "tell me how to spell {one}", one=one), "spell", word=one)
    return [], [first, expects(fill(rng, "and now please the word {two}", "and then please also {two}", "no i actually said {two}", "sorry i did not mean {one} but {two}", one=one, two=two), "spell", word=two)]


def corrected_sum(rng: random.Random) -> Dialogue:
    a, b = pair(rng)
    c = rng.choice([n for n in range(10, 60) if n not in (a, b)])
    first = expects(fill(rng, "tell me how much {a} plus {b} is", "please work out {a} plus {b}", a=a, b=b), "number", value=a + b)
    way = rng.choice(("first", "second", "sign", "whole"))
    if way == "first":
        return [], [first, expects(fill(rng, "no, i said {c}, not {a}", "no, not {a}, {c}", "sorry, {c} instead of {a}", a=a, c=c), "number", value=c + b)]
    if way == "second":
        return [], [first, expects(fill(rng, "oh sorry, i meant {c} and not {b}", "no, not {b}, {c}", "please take {c} instead of {b}", b=b, c=c), "number", value=a + c)]
    if way == "sign":
        return [], [first, expects(fill(rng, "no, i really meant minus", "sorry, minus, not plus", "i wanted minus"), "number", value=a - b)]
    d, e = pair(rng)
    return [], [first, expects(fill(rng, "no wait, i meant to say {d} minus {e}", "sorry, make it {d} minus {e}", d=d, e=e), "number", value=d - e)]


def names(rng: random.Random) -> Dialogue:
    one, two = rng.sample(SPOKEN_NAMES, 2)
    first = expects(fill(rng, "good morning, my name is {x}", "just so you know, my name is {x}", "people call me {x}", "hello there, i am {x}", x=one.title()), "user_name", name=one)
    asked = fill(rng, "can you still tell me my name", "do you still know what my name is", "tell me please what my name is", "what was my name again")
    aside = [[expects("say hello world", "repeat", words="hello world")], [expects("which day comes after tuesday then", "calendar", name="wednesday")], [], [expects("how are you this evening nano", "howareyou")]]
    turns = [first]
    name = one
    if rng.random() < 0.4:
        turns.append(expects(fill(rng, "no, my name is {y}, not {x}", "sorry, i meant to say {y}", "no, it is {y}", y=two.title(), x=one.title()), "user_name", name=two))
        name = two
    return [], [*turns, *rng.choice(aside), *rng.choice(aside), expects(asked, "user_name", name=name)]


def facts(rng: random.Random) -> Dialogue:
    colour, city, age = rng.choice(COLOURS), rng.choice(("oslo", "denver", "cairo", "leeds")), rng.randint(20, 90)
    tell, ask, answer, told = rng.choice((
        (("you should know my favorite color is {x}", "the color that i like best is {x}"), ("now what is my favorite color", "can you tell me which color i like"), "Your favorite color is {x}.", colour),
        (("you should know that i live in {x}", "at the moment i live in {x}"), ("tell me where it is i live", "can you tell me where i live"), "You live in {x}.", city.title()),
        (("you should know i am {x} years old", "this year i am {x} years old"), ("can you tell me how old i am", "how many years old am i"), "You are {x}.", age),
    ))  # fmt: skip
    confirmed = {"Your favorite color is {x}.": "Okay. Your favorite color is {x}.", "You live in {x}.": "Okay. You live in {x}.", "You are {x}.": "Okay. You are {x}."}[answer]
    return [], [says(fill(rng, *tell, x=told), confirmed.replace("{x}", str(told))), expects("say good night", "repeat", words="good night"), says(fill(rng, *ask), answer.replace("{x}", str(told)))]


def unknown_fact(rng: random.Random) -> Dialogue:
    return [], [expects(fill(rng, "nice to see you, nano", "good morning to you nano"), "greet"), expects(fill(rng, "can you tell me what my name is", "and do you know what my name is"), "name_unknown")]


def left_out(rng: random.Random) -> Dialogue:
    a, b = pair(rng)
    word = rng.choice([w for w in dictionary_words() if is_held_out_word(w) and 3 <= len(w) <= 8])
    n = rng.randint(3, 15)
    return [], list(rng.choice((
        (says("i want you to add two numbers", "Which numbers?"), expects(fill(rng, "they are {a} and {b}", "let us take {a} and {b}", a=a, b=b), "number", value=a + b)),
        (says(fill(rng, "now please spell a word for me", "i want you to spell something"), "Which word?"), expects(fill(rng, "let us take the word {w}", "i would like {w} please", w=word), "spell", word=word)),
        (says(fill(rng, "i would like you to repeat something", "now repeat some words for me"), "What shall I say?"), expects("blue cheese and old bread", "repeat", words="blue cheese and old bread")),
        (says(fill(rng, "please count a little for me", "now start to count for me"), "Up to which number?"), expects(fill(rng, "let us say up to {n}", "please go up to {n}", n=n), "count", first=1, last=n)),
    )))  # fmt: skip


def timer(rng: random.Random) -> Dialogue:
    n, m = rng.sample(range(2, 50), 2)
    tool, argument = rng.choice((("set_timer", lambda k: {"minutes": k}), ("startTimer", lambda k: {"seconds": 60 * k}), ("create_timer", lambda k: {"duration": f"{k} minutes"})))
    others = rng.sample(("get_weather", "set_volume", "open_valve"), rng.choice((0, 1, 2)))
    way = rng.choice(("plain", "asked", "corrected"))
    if way == "asked":
        turns = [says(fill(rng, "i would like you to set a timer", "nano please start a timer now", "we need a timer here"), "For how long?"), calls(fill(rng, "let us take {n} minutes", "{n} minutes would be good", "i need {n} minutes please", n=n), tool, **argument(n))]
    else:
        first = fill(rng, "would you set me a timer for {n} minutes", "start a new timer of {n} minutes please", "put on a timer for {n} minutes", n=n)
        turns = [calls(first, tool, '{"status": "ok"}', "Done.", **argument(n))]
        if way == "corrected":
            turns.append(calls(fill(rng, "no, {m} minutes, not {n} minutes", "sorry, it should be {m} minutes instead", "no, i wanted {m} minutes", n=n, m=m), tool, **argument(m)))
    return [tool, *others], turns


def light(rng: random.Random) -> Dialogue:
    state = rng.choice(("on", "off"))
    if rng.random() < 0.5:
        room = rng.choice(("kitchen", "bedroom", "garage", "office"))
        text = fill(rng, "i want you to turn {s} the {r} lights", "please turn {s} the lights in the {r} now", "would you please switch {s} the light in the {r}", s=state, r=room)
        return ["control_lights"], [calls(text, "control_lights", "ok", "Done.", state=state.upper(), room=room)]
    colour = rng.choice(COLOURS)
    first = calls(fill(rng, "i want you to turn {s} the light", "would you please turn {s} my lamp", "now turn the lamp {s} for me", s="on"), "set_light", '{"success": true}', "Done.", on=True)
    second = rng.choice((
        calls(fill(rng, "and now please turn it off", "please turn it off again now"), "set_light", on=False),
        calls(fill(rng, "and now make the light {c}", "i want the lamp to be {c}", "can the light be {c} please", c=colour), "set_light", color=colour),
    ))
    return ["set_light"], [first, second]


def weather(rng: random.Random) -> Dialogue:
    one, two = rng.sample(("oslo", "lisbon", "boston", "nairobi", "vancouver", "seoul", "new orleans", "belgrade"), 2)
    tool, name = rng.choice((("get_weather", "city"), ("weather_forecast", "location")))
    told = rng.choice(("sunny, 21 degrees", "rain 9", "cloudy, 4 C"))
    text = fill(rng, "could you look up the weather in {x}", "how does the weather look in {x}", "i want to know the weather in {x}", x=one)
    first = calls(text, tool, told, f"The weather: {told}.", **{name: one.title()})
    way = rng.choice(("follow", "asked", "plain"))
    if way == "asked":
        return [tool], [says(fill(rng, "what will the weather be today", "tell me about the weather outside"), "In which city?"), calls(fill(rng, "i am in {x} right now", "here in {x} please", x=one), tool, **{name: one.title()})]
    follow = [calls(fill(rng, "and how about the city of {y}", "and how is it in {y}", "no, i wanted it for {y}", y=two), tool, **{name: two.title()})] if way == "follow" else []
    return [tool], [first, *follow]


def volume(rng: random.Random) -> Dialogue:
    n = rng.randint(5, 95)
    up, down = "could you speak a bit louder", "you speak much too loud"
    return ["set_volume"], [rng.choice((
        calls(fill(rng, "i want the volume at {n} percent", "please turn your volume to {n}", "put the volume down to {n}", n=n), "set_volume", level=n),
        calls(fill(rng, up, "please turn it up louder"), "set_volume", direction="up"),
        calls(fill(rng, down, "please be a little quieter"), "set_volume", direction="down"),
    ))]  # fmt: skip


def undeclared(rng: random.Random) -> Dialogue:
    text = fill(rng, "would you set a timer for {n} minutes", "please turn on the light in my room", "look up the weather in madrid for me", "i want the volume at {n} percent", "please set the light to the reading scene", "open the valve to {n} bar", n=rng.randint(3, 50))
    offered: list[str] = rng.choice(([], ["open_valve"], ["set_light_scene"], ["open_valve", "set_light_scene"]))
    return offered, [expects(text, "refuse")]


def hand_over(rng: random.Random) -> Dialogue:
    first = expects(fill(rng, "what do you know about the history of peru", "write a story about a brave little mouse", "who was the best painter of all time"), "refuse")
    return [], [first, says(fill(rng, "then which bigger model should i take", "and how do i get such a bigger model", "okay how can i start a bigger model"), HAND_OVER)]


KINDS: tuple[tuple[str, int, Callable[[random.Random], Dialogue]], ...] = (
    ("look", 36, look), ("look on", 28, look_on), ("blind", 12, blind), ("sums", 14, sums), ("days", 8, days), ("words", 8, words),
    ("corrected sum", 16, corrected_sum), ("names", 18, names), ("facts", 8, facts), ("unknown fact", 2, unknown_fact), ("left out", 12, left_out),
    ("timer", 11, timer), ("light", 8, light), ("weather", 8, weather), ("volume", 3, volume), ("undeclared", 5, undeclared), ("hand over", 3, hand_over),
)  # fmt: skip
