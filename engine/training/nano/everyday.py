"""Sentences of the genres that voices are measured with: numbers, names, questions, lists, spelled letters, prose.

Spoken lower-case English like the whole corpus, deterministic for a given generator. `corpus.unseen` excludes the
evaluation's sentences.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.english.lexicon import LETTER_NAMES
from engine.training.nano.assistant import fill, number, ordinal, spelled
from engine.training.nano.phrases import DAYS, MONTHS, NAMES, NOUNS


def _words(text: str) -> list[str]:
    return text.split()


GIVEN = _words("""
adam adrian agnes alan albert alex alexander alice alison allison amanda amber amelia amy andrea andrew angela anita
ann anne annie anthony antonio april arnold arthur ashley audrey austin barbara barry beatrice benjamin bernard beth
betty beverly bill blake bob bonnie brad bradley brandon brenda brett brian bridget bruce bryan caleb calvin cameron
carl carlos carmen carol caroline catherine cecil chad charles charlotte chelsea cheryl chester chloe christian
christina christine christopher claire clara clarence claude clifford colin connie connor corey craig crystal curtis
cynthia daisy dale dan daniel danny darren dave david dawn dean deborah dennis derek diane dolores dominic donald
donna doris dorothy douglas duncan dylan earl eddie edgar edith edward edwin eileen elaine eleanor elizabeth ella
ellen elliot elsie emily emma eric erica ernest esther ethan eugene eva evan evelyn faith felix fiona florence floyd
frances francis frank franklin fred frederick gabriel gail gary gavin george gerald gilbert gina gladys glenn gloria
gordon grace graham grant greg gregory gwen hannah harold harry harvey hazel heather heidi helen henry herbert
herman holly howard hugh ian ida irene iris isaac isabel ivan jack jackie jacob jake james jamie jane janet janice
jason jasper jay jean jeff jeffrey jennifer jeremy jerome jerry jesse jessica jill jim joan joanna joe joel john
johnny jonathan jordan joseph josh joshua joy joyce juan judith judy julia julian julie june justin karen karl kate
katherine kathleen keith kelly ken kenneth kevin kim kimberly kirk kurt kyle larry laura lauren laurence leah leo
leonard leroy leslie lester lewis lillian linda lisa lloyd lois lola lorraine louis louise lucas lucy luis luke
luther lydia lynn mabel madison malcolm marcia marcus margaret maria marian marie marilyn mario marion marjorie mark
marshall martha martin marvin mary mathew matilda maurice max megan melanie melissa melvin michael michelle mike
mildred miles milton miranda mitchell molly monica morgan morris nancy naomi natalie nathan neil nicholas nicole
nigel nina noah nora norman olive oliver olivia oscar otto owen pamela patricia patrick paul paula pauline pearl
peggy penny perry peter philip phillip phyllis priscilla rachel ralph ramon randy raymond rebecca regina rex ricardo
richard rita robert roberta robin rodney roger roland ron ronald rosemary ross roy ruby russell ruth ryan sabrina
sally samantha samuel sandra sarah scott sean seth shannon sharon shaun sheila shirley sidney silvia simon sonia
sophia stanley stella stephanie stephen steve stewart stuart susan sylvia tamara teresa terry thelma theodore
theresa thomas tiffany timothy todd tom tony tracy travis trevor tyler valerie vanessa vera vernon veronica victor
victoria vincent viola violet virginia vivian wallace walter wanda warren wayne wendy wesley wilbur william wilma
winston yvonne zachary zoe
""")

SURNAMES = _words("""
adams allen anderson armstrong bailey baker barnes bell bennett brooks brown bryant burke burns butler campbell
carpenter carter chapman clark coleman collins cooper cox crawford cruz cunningham daniels davis dixon duncan
edwards elliott ellis evans ferguson fisher fletcher ford foster fox freeman garcia gardner gibson gonzalez gordon
graham grant gray green griffin hall hamilton hansen harper harris harrison hart hayes henderson hicks hill holmes
howard hudson hughes hunt hunter jackson jacobs jenkins johnson jones kelly kennedy king knight lane lawrence lee
lewis lopez marshall martin martinez mason matthews mcdonald miller mitchell moore morgan morris murphy murray myers
nelson newman nguyen nichols olson owens palmer parker patterson payne perkins perry peterson phillips pierce porter
powell price ramirez reed reynolds rice richards richardson rivera roberts robinson rodriguez rogers rose ross
russell ryan sanders schmidt scott shaw simmons simpson smith snyder spencer stephens stevens stewart stone sullivan
taylor thompson torres tucker turner wagner walker wallace ward warren washington watkins watson weaver webb welch
wells west wheeler white williams williamson wilson wood woods wright young
""")

TOWNS = _words("""
amsterdam athens atlanta austin baltimore bangkok barcelona beijing belfast belgrade berlin birmingham bombay boston
brisbane brussels budapest buffalo cairo calcutta calgary cambridge chicago cleveland cologne copenhagen dallas
damascus delhi denver detroit dresden dublin edinburgh florence frankfurt geneva glasgow hamburg havana helsinki
honolulu houston istanbul jakarta jerusalem karachi kiev lima lisbon liverpool london lyon madrid manchester manila
marseilles melbourne memphis miami milan milwaukee minneapolis montreal moscow munich nairobi naples nashville
newark oakland orlando oslo ottawa oxford paris perth philadelphia phoenix pittsburgh portland prague quebec
richmond rome rotterdam sacramento salzburg santiago seattle seoul shanghai singapore stockholm sydney tampa tokyo
toronto tucson tunis turin vancouver venice vienna warsaw washington wellington winnipeg zurich alabama alaska
arizona arkansas california colorado connecticut delaware florida georgia hawaii idaho illinois indiana iowa kansas
kentucky louisiana maine maryland massachusetts michigan minnesota mississippi missouri montana nebraska nevada
oklahoma oregon pennsylvania tennessee utah vermont virginia wisconsin wyoming africa algeria argentina asia
australia austria belgium bolivia brazil bulgaria canada chile china colombia cuba denmark egypt england ethiopia
europe finland france germany ghana greece hungary iceland india indonesia iran iraq ireland israel italy jamaica
japan jordan kenya korea kuwait lebanon libya malaysia mexico morocco nepal norway pakistan panama peru poland
portugal romania russia scotland spain sudan sweden switzerland syria taiwan thailand turkey uganda ukraine
venezuela vietnam wales zambia
""")

ABOUT_PEOPLE = """
{person} lives in {town}.|{given} and {given} went to {town} last {month}.|have you met {person}?|{title} {surname}
is on the phone.|i got a letter from {given}, who moved to {town}.|{given} said that {given} is older than
{given}.|please call {person} before noon.|my sister {given} works for {title} {surname}.|{person} was born in
{town}.|the {surname}s have a house near {town}.|is {given} coming with {given}, or with {given}?|this is {given}
{surname}, speaking from {town}.|{given} forgot {given}'s birthday.|we drove from {town} to {town} in a day.|ask
{given} whether {given} is at home.|{title} {surname} teaches in {town}.|it rains more in {town} than in
{town}.|{given}, this is my friend {given}.|the train to {town} stops in {town}.|{person} wrote a song about
{town}.|good morning, {title} {surname}.|who told {given} about {town}?|{given} plays chess with {given} every
{day}.|the {surname} family came from {town}.|did {person} ever fly to {town}?|{given} met {given} at the airport in
{town}.|tell {given} that {given} has arrived.|{given}, {given}, and {given} are on the list.
"""

QUESTIONS = """
what time does the {noun} open?|have you ever seen a {adjective} {noun}?|who left the {noun} {place}?|why is the
{noun} so {adjective}?|could you tell me where the {noun} is?|is there enough {noun} for {number} people?|how long
will it take to {verb} the {noun}?|where did you put my {adjective} {noun}?|which of these two {noun}s do you like
better?|do you think it will be {weather} on {day}?|are the {noun}s still {place}?|when was the last time you saw
{name}?|what happens if i {verb} this {noun}?|can i {verb} the {noun}, or is it too {adjective}?|did anybody {verb}
the {noun} while i was away?|would it be all right if i {verb} your {noun}?|how much does a {adjective} {noun}
cost?|whose {noun} is {place}?|shall we wait for {name} or start now?|what is the name of that {noun}?|how do you
{verb} a {noun}?|may i {verb} your {noun}?|have they {adjective} {noun}s?|what kind of {noun} do you want?|does this
{noun} belong to {name}?|how old is your {noun}?|who is going to {verb} the {noun} next week?|what did {name} say
about the {noun}?|should i bring a {noun}, or will it be {weather}?|aren't you {adjective}?|how many times did you
{verb} it?|will there be {noun} and {noun}?|do you remember the {noun} from {month}?|was the {noun} as {adjective}
as the {noun}?|why don't we {verb} the {noun}?|isn't the {noun} {place}?|couldn't you {verb} it yourself?|what would
you do with {number} {noun}s?|is your {noun} {adjective}, or is it {adjective}?|were you {place} when {name}
called?|has {name} seen the {noun}?|must we {verb} it today?
"""

PROSE = """
the {adjective} {noun} stood {place}, and nobody {past} it.|she {past} the {noun} and {past} the {noun}.|by the time
they {past} the {noun}, it was {adjective}.|he {past} to {verb} the {noun} before {month}.|the {noun} was
{adjective}, but the {noun} was {adjective}.|for a long time there was only the {noun}.|a {adjective} {noun} {past}
above the {noun}.|when the {noun} stopped, everyone {past} at {name}.|in the morning the {noun} was {adjective} and
{adjective}.|there was one {noun} in the room, and it was {adjective}.|behind the {noun} stood a {adjective}
{noun}.|his {noun} had been {adjective} for years.|they spoke about the {noun} so that {name} could hear.|she
thought of the {noun}, as she always did.|the {noun} turned slowly toward the {adjective} {noun}.|nobody in the
{noun} had seen such a {adjective} {noun} before.|something {adjective} moved near the {noun}.|he closed the {noun}
and {past} at the {noun}.|without a word, {name} {past} the {noun}.|it was the kind of {noun} that makes you {verb}
the {noun}.|far below the {noun}, the {noun}s began to move.|her {noun} was cold, and the {noun} was
{adjective}.|every evening the {adjective} {noun} sat outside the {noun}.|the {noun} smelled of {noun} and
{adjective} {noun}.
"""

PAST = _words("""
looked lifted folded carried promised crossed reached touched poured climbed laughed turned waited followed opened
closed walked pulled pushed dropped noticed answered whispered watched missed painted pressed counted washed passed
asked wanted remembered finished started stopped filled moved covered
""")

SLOTS: dict[str, Callable[[random.Random], str]] = {
    "given": lambda rng: rng.choice(GIVEN),
    "surname": lambda rng: rng.choice(SURNAMES),
    "town": lambda rng: rng.choice(TOWNS),
    "person": lambda rng: f"{rng.choice(GIVEN)} {rng.choice(SURNAMES)}",
    "title": lambda rng: rng.choice(("mister", "missus", "miss", "doctor", "professor", "captain", "senator")),
    "past": lambda rng: rng.choice(PAST),
}


def everyday(rng: random.Random) -> str:
    """Return a sentence of a random genre."""
    return rng.choice(GENRES)(rng)


def _frames(text: str) -> list[str]:
    return " ".join(text.split()).split("|")


def _from(frames: list[str]) -> Callable[[random.Random], str]:
    return lambda rng: fill(rng, rng.choice(frames), SLOTS)


def amounts(rng: random.Random) -> str:
    """Return a sentence with one or two numbers as the front end spells them."""
    return rng.choice(AMOUNTS)(rng)


def _some(rng: random.Random) -> int:
    return rng.choice(
        (rng.randrange(10), rng.randrange(100), rng.randrange(1000), rng.randrange(10_000), rng.randrange(4_000_000))
    )


def _decimal(rng: random.Random) -> str:
    digits = " ".join(number(rng.randrange(10)) for _ in range(rng.randrange(1, 4)))
    return f"{number(_some(rng) % 1000)} point {digits}"


def _money(rng: random.Random) -> str:
    whole, cents = _some(rng), rng.randrange(1, 100)
    amount = f"{number(whole)} dollars" + (f" and {number(cents)} cents" if rng.random() < 0.6 else "")
    return fill(rng, rng.choice(("the {noun} costs ", "you owe {name} ", "that comes to ", "he paid "))) + amount + "."


def _phone(rng: random.Random) -> str:
    groups = [" ".join(number(rng.randrange(10)) for _ in range(count)) for count in (3, 3, 4)]
    return f"{rng.choice(('the number is ', 'call ', 'you can reach us at ', ''))}{', '.join(groups)}."


def _measure(rng: random.Random) -> str:
    value = _decimal(rng) if rng.random() < 0.4 else number(_some(rng))
    opening = fill(rng, rng.choice(("the {noun} is ", "the {noun} weighs ", "from here it is ", "add ", "we need ")))
    units = "meters miles kilograms liters feet inches tons cups degrees percent kilometers seconds"
    unit = rng.choice(units.split())
    return f"{opening}{value} {unit}{rng.choice(('', '', ' long', ' of water', ' today'))}."


def _moment(rng: random.Random) -> str:
    hour, minute = number(rng.randrange(1, 13)), rng.randrange(1, 60)
    clock = f"{hour} oh {number(minute)}" if minute < 10 else f"{hour} {number(minute)}"
    half = rng.choice(("ay em", "pee em", "in the evening", "sharp"))
    opening = fill(rng, rng.choice(("the {noun} leaves at ", "meet {name} at ", "it starts at ", "wake me at ")))
    ending = rng.choice(("on " + rng.choice(DAYS), "gate " + number(rng.randrange(60)), "tomorrow"))
    return f"{opening}{clock} {half}, {ending}."


def _sum(rng: random.Random) -> str:
    a, b = rng.randrange(200), rng.randrange(200)
    return f"{number(a)} plus {number(b)} is {number(a + b)}, and {number(a + b)} minus {number(a)} is {number(b)}."


def _history(rng: random.Random) -> str:
    years = f"{number(rng.choice((17, 18, 19, 20)))} {number(rng.randrange(10, 100))}"
    day = f"{rng.choice(MONTHS)} {ordinal(rng.randrange(1, 32))}"
    return fill(rng, rng.choice((f"in {years} the {{noun}} was {{adjective}}.", f"it happened on {day}, {years}.",
                                 f"between {years} and two thousand and five, {{name}} lived there.")))  # fmt: skip


def listing(rng: random.Random) -> str:
    """Return a list of things, numbers or letters."""
    draw = rng.random()
    if draw < 0.4:
        letters = [LETTER_NAMES[letter] for letter in rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 8))]
        return f"{', '.join(letters)}."
    if draw < 0.6:
        word = rng.choice(GIVEN + NOUNS)
        return f"{word}, {spelled(word)}."
    if draw < 0.8:
        return f"{', '.join(number(_some(rng) % 1000) for _ in range(rng.randrange(3, 7)))}."
    items = rng.sample(NOUNS + NAMES, rng.randrange(3, 6))
    return f"{rng.choice(('we have ', 'bring ', 'there are ', ''))}{', '.join(items[:-1])}, and {items[-1]}."


AMOUNTS = (_money, _money, _phone, _measure, _measure, _moment, _sum, _history)
GENRES: list[Callable[[random.Random], str]] = [
    amounts, amounts, _from(_frames(ABOUT_PEOPLE)), _from(_frames(QUESTIONS)), listing, _from(_frames(PROSE)),
]  # fmt: skip
