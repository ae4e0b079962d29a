"""Word lists for dialogues: words to repeat and spell by voice, names, numbers, topics, and the held-out words."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

from engine.worker.models.nano import own


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


SPOKEN_WORDS: tuple[str, ...] = _words(
    """
    about above across action actor adventure afternoon airplane airport alarm album almond amazing anchor ancient
    angel animal another answer apartment apple april apricot arrow artist asking autumn avenue avocado awful baby
    bacon badger balcony balloon bamboo banana bandage basket battery beautiful beaver because bedroom before
    begin behind believe belong beneath better between bicycle birthday biscuit blanket blossom blue border bottle
    bottom branch bread breakfast bridge bright brother brown bubble bucket budget building burger butter
    butterfly button cabbage cabin camera camping candle candy captain caramel carbon careful carpet carrot castle
    catalog center certain champion chapter cheese cherry chicken children chimney chocolate cinema
    circle circus city classic clever climate cloud clover coffee college color comfort common company compass computer
    concert cookie copper corner cotton country cousin cowboy cradle crocodile crystal cucumber culture curtain
    cushion customer daddy dancing danger daughter december decide delicious dentist desert dinner doctor dolphin
    donkey double dragon drawing dream driver duck during eagle early easy elbow electric elephant eleven empty
    energy engine england enough envelope evening everyone example exciting explain fabric factory family famous
    fantastic farmer father favorite feather february festival fiction finger finish fire fishing flamingo flavor
    floor follow football forest forever forget fortune forward fountain freedom friday friend frog frozen
    fruit funny furniture future galaxy gallery garage garden garlic gentle giant ginger giraffe glitter global golden
    good gorilla grammar grandmother grape green guitar habit hamburger hammer happy harbor hazard healthy helicopter
    helmet hero hidden history hockey holiday honey hospital hotel hundred hungry husband iceberg idea important
    include indigo insect inside instant interest island jacket january jelly jewel journey juice jungle justice
    kangaroo kettle kitchen kitten ladder language lantern laptop laughing lavender lawyer leather legend lemon
    leopard lesson letter library lightning lion listen little lizard lobster london lovely lucky machine magazine
    magic magnet mango marble market marvel meadow medicine melody member memory mermaid middle million mirror
    mister modern moment money monkey monster morning mother mountain movie museum mushroom music mustard
    mystery napkin nation nature needle neighbor never nickel noodle nothing notice november number object
    ocean october octopus office olive onion only open opera orange orchard orchestra oven oxygen package
    painter palace pancake panda paper parade parent paris parking parrot party passport pattern peanut pelican pencil
    penguin people pepper perfect person piano picnic picture pigeon pillow pilot pineapple pirate pizza planet plastic
    player pocket poem polite popcorn postcard potato powder president pretty prince princess problem program
    puppy purple puzzle pyramid quality quarter question quick quiet rabbit radio railway rainbow raspberry
    ready reason record remember restaurant ribbon river robin rocket round rubber safari sailor salad salmon
    sandwich saturday school science scissors seven shadow shelter shower silver simple singer sister
    slowly smiling snowman soccer soldier something spider spinach spoon spring squirrel station story strawberry
    street strong student sugar summer sunday sunflower sunny sunset surprise sweater swimming table talent
    taxi teacher telephone television temple tennis theater thunder thursday ticket tiger tomato tomorrow tonight
    tractor traffic train travel treasure triangle tropical trumpet tunnel turtle twenty umbrella uncle under unicorn
    uniform universe vacation valley vanilla vegetable velvet village violet violin visit volcano wagon walking
    wallet warm water watermelon wedding wednesday welcome whisper window winter wisdom wizard wonderful
    wooden yellow yesterday yogurt young zebra zero
    """
)
"""Words of spoken repeat and spell requests, without homophones, which a listener cannot distinguish."""

SPOKEN_NAMES: tuple[str, ...] = _words(
    """
    adam alice amanda andrew angela anna anthony barbara benjamin brandon caroline catherine charlie christopher
    cynthia daniel david deborah dorothy edward elizabeth emily emma frederick gabriel george hannah harry helen henry
    isabel jacob james jennifer jessica john jonathan joseph joshua julia kevin laura leonard linda lucy margaret
    maria martin matthew melissa michael monica nancy natalie nicholas oliver olivia pamela patricia patrick
    peter rachel rebecca richard robert samantha samuel sandra sebastian simon sophia susan thomas timothy vanessa
    veronica victoria vincent virginia walter william
    """
)

DAYS, MONTHS = (tuple(name.lower() for name in names) for names in (own.DAYS, own.MONTHS))
ONES = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")

TOPICS = _phrases(
    """
    football|the weather|the stock market|quantum physics|cooking|the moon|the ocean|dinosaurs|music|history|politics|
    the economy|chess|gardening|black holes|democracy|love|philosophy|religion|biology|chemistry|computers|ancient rome|
    the roman empire|world war two|the french revolution|climate change|volcanoes|whales|bees|coffee|tea|wine|bread|
    photography|yoga|cars|trains|airplanes|electric cars|gravity|evolution|the human brain|sleep|dreams|vitamins|
    my car|my dog|my homework|my boss|my sister|my garden|the news|the election|the president|the olympics|tennis|
    basketball|the internet|money|taxes|insurance|law|the universe|mars|jupiter|the sun|rain|snow|earthquakes|poetry
    """
)
PLACES = _phrases(
    """
    france|germany|spain|italy|london|paris|new york|tokyo|berlin|india|china|brazil|canada|australia|egypt|russia|
    mexico|japan|africa|europe|sweden|norway|turkey|greece|california|texas|chicago|boston|moscow|madrid|rome|vienna|
    the nearest station|the airport|the supermarket|this city|my town|the world|peru|chile|kenya|poland|ireland|scotland
    """
)
FIGURES = _phrases(
    """
    shakespeare|einstein|napoleon|mozart|beethoven|picasso|the queen of england|the president|the pope|newton|darwin|
    cleopatra|julius caesar|elvis presley|the prime minister|marie curie|aristotle|plato|leonardo da vinci|gandhi|
    abraham lincoln|george washington|the king of spain|my neighbor|your favorite actor|bach|van gogh|columbus|homer
    """
)
THINGS = _phrases(
    """
    a car|a house|a ticket|a bicycle|a phone|a computer|a cake|a pizza|a tree|an elephant|a whale|a horse|a bridge|
    a rocket|a plane|a book|a song|a movie|a poem|a letter|a table|a guitar|an egg|an apple pie|a cup of tea|soup|rice|
    a shirt|a dress|a lamp|a window|a garden|a website|a company|a robot|a spider|a cat|a dog|a bird|a fish|bread
    """
)


def number_words(number: int) -> str:
    """Return 0..999 in words: 42 is "forty two", 305 is "three hundred five"."""
    if number >= 100:
        rest = f" {number_words(number % 100)}" if number % 100 else ""
        return f"{ONES[number // 100]} hundred{rest}"
    if number < 20:
        return ONES[number]
    return TENS[number // 10 - 2] + (f" {ONES[number % 10]}" if number % 10 else "")


def is_held_out_word(word: str) -> bool:
    """Return whether the word is held out; one dictionary word in 16 is never repeated or spelled in training."""
    return zlib.crc32(word.lower().encode()) % 16 == 0


def is_held_out_pair(a: int, b: int) -> bool:
    """Return whether the pair is held out; one pair of numbers in 8 (in either order) never occurs in training sums."""
    return zlib.crc32(f"{min(a, b)}:{max(a, b)}".encode()) % 8 == 0


@cache
def dictionary_words() -> tuple[str, ...]:
    """Return the words of pocketsphinx's CMU pronouncing dictionary (2 to 12 letters), sorted."""
    import pocketsphinx

    path = Path(pocketsphinx.get_model_path()) / "en-us" / "cmudict-en-us.dict"
    first = (line.split(maxsplit=1)[0] for line in path.read_text().splitlines() if line)
    return tuple(sorted({word for word in first if word.isascii() and word.isalpha() and 2 <= len(word) <= 12}))
