"""Spoken names of letters, signs, units, currencies and abbreviations in English. Data only."""


def _words(text: str, separator: str = " ") -> list[str]:
    return text.split(separator)


_NAMES = "ay,bee,see,dee,ee,eff,gee,aitch,eye,jay,kay,ell,em,en,oh,pee,cue,are,ess,tee,you,vee,double you,ex,why,zee"
LETTER_NAMES = dict(zip("abcdefghijklmnopqrstuvwxyz", _words(_NAMES, ","), strict=True))

FULL_MONTHS = _words("january february march april may june july august september october november december")
MONTHS = frozenset(FULL_MONTHS + _words("jan feb mar apr jun jul aug sep sept oct nov dec"))

MAGNITUDES = frozenset(_words("hundred thousand million billion trillion"))
SHORT_MAGNITUDES = {
    "k": "thousand",
    "K": "thousand",
    "M": "million",
    "mn": "million",
    "B": "billion",
    "bn": "billion",
    "T": "trillion",
}
SHORT_TIMES = {"h": "hour", "hr": "hour", "d": "day", "wk": "week", "mo": "month", "yr": "year"}

# Words that a number follows, also a Roman one.
NUMBERED = frozenset(
    _words(
        "act apollo appendix article book bowl chapter class division episode figure grade level mark page part phase "
        "question round scene season section stage step table tier title type unit version volume war world"
    )
)
# Names of rulers, which an ordinal follows.
RULERS = frozenset(
    _words(
        "alexander alfonso catherine charles christian edward elizabeth ferdinand francis frederick george gustav "
        "harald henry innocent james john juan louis ludwig mary napoleon nicholas olav otto paul peter philip pius "
        "ramesses richard rudolf thutmose urban victor wilhelm william"
    )
)
# Words that digits follow which are read one by one.
DIALED = frozenset(_words("call code dial ext extension fax phone pin text zip"))

# written -> (one, many, name of the hundredth part)
CURRENCIES = {
    "$": ("dollar", "dollars", "cents"),
    "€": ("euro", "euros", "cents"),
    "£": ("pound", "pounds", "pence"),
    "¥": ("yen", "yen", ""),
    "₹": ("rupee", "rupees", "paise"),
}

UNITS = {
    "%": ("percent", "percent"),
    "°": ("degree", "degrees"),
    "°c": ("degree celsius", "degrees celsius"),
    "°C": ("degree celsius", "degrees celsius"),
    "°f": ("degree fahrenheit", "degrees fahrenheit"),
    "°F": ("degree fahrenheit", "degrees fahrenheit"),
    "km": ("kilometer", "kilometers"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "m/s": ("meter per second", "meters per second"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "m": ("meter", "meters"),
    "ft": ("foot", "feet"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "l": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "s": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "min": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "kb": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "mb": ("megabyte", "megabytes"),
    "MB": ("megabyte", "megabytes"),
    "gb": ("gigabyte", "gigabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "tb": ("terabyte", "terabytes"),
    "TB": ("terabyte", "terabytes"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "kw": ("kilowatt", "kilowatts"),
    "kW": ("kilowatt", "kilowatts"),
    "W": ("watt", "watts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "mAh": ("milliampere hour", "milliampere hours"),
    "kcal": ("kilocalorie", "kilocalories"),
    "dB": ("decibel", "decibels"),
    "mi": ("mile", "miles"),
    "fps": ("frame per second", "frames per second"),
    "bpm": ("beat per minute", "beats per minute"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "V": ("volt", "volts"),
}

SIGNS = {
    "&": "and",
    "+": "plus",
    "-": ",",
    "–": ",",
    "—": ",",
    "−": "minus",
    "=": "equals",
    "×": "times",
    "÷": "divided by",
    "*": "times",
    "@": "at",
    "%": "percent",
    "°": "degrees",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
    "≈": "is about",
    "≠": "is not",
    "±": "plus or minus",
    "√": "the square root of",
    "∞": "infinity",
    "·": "times",
    "→": "to",
    "$": "dollars",
    "€": "euros",
    "£": "pounds",
}

LONE_SIGNS = SIGNS | {"/": "divided by"}  # between blanks

# Letters that Unicode does not take apart.
LIGATURES = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "ø": "o", "Ø": "O", "œ": "oe", "ł": "l", "Ł": "L", "đ": "d"}
)

# Beginnings of Unicode's names of letters -> what one calls them; others are called as they begin.
ALPHABETS = {
    "cjk": "chinese",
    "hangul": "korean",
    "hiragana": "japanese",
    "katakana": "japanese",
    "devanagari": "hindi",
    "another": "another script",
    "latin": "another script",
    "modifier": "another script",
}

ABBREVIATIONS = {
    "dr.": "doctor",
    "mr.": "mister",
    "mrs.": "missus",
    "ms.": "miz",
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "prof.": "professor",
    "st.": "saint",
    "jr.": "junior",
    "sr.": "senior",
    "e.g.": "for example,",
    "e.g": "for example,",
    "i.e.": "that is,",
    "i.e": "that is,",
    "etc.": "and so on.",
    "etc": "and so on",
    "vs.": "versus",
    "vs": "versus",
    "approx.": "about",
    "a.m.": "ay em",
    "p.m.": "pee em",
    "a.m": "ay em",
    "p.m": "pee em",
    "am/pm": "ay em or pee em",
    "pm": "pee em",
    "u.s.": "you ess",
    "u.k.": "you kay",
    "u.s.a.": "you ess ay",
    "ok": "okay",
    "o.k.": "okay",
    "at&t": "ay tee and tee",
    "w/": "with",
    "w/o": "without",
    "and/or": "and or",
    "hmm": "hum",
    "hm": "hum",
    "mhm": "um hum",
    "pls": "please",
    "jan.": "january",
    "feb.": "february",
    "aug.": "august",
    "sept.": "september",
    "oct.": "october",
    "nov.": "november",
    "dec.": "december",
}

ALWAYS_SPELLED = frozenset(
    _words("api asr cpu css dvd eu faq gpu html http https ip llm pc pdf sql tts tv uk url usa usb")
)

WORDS_IN_CAPITALS = frozenset(
    _words(
        "A ALL AM AN AND ANY ARE AS ASK AT BAD BE BIG BOX BOY BUT BY CAN CAR CAT DAY DID DO DOG EAT END FAR FEW "
        "FOR FUN "
        "GET GO GOT HAD HAS HE HER HI HIM HIS HOT HOW IF IN IS IT ITS LET MAY ME MY NEW NO NOT NOW OF OFF OH OK OLD ON "
        "ONE OR OUR OUT PIN RAM RED ROM RUN SAY SEE SHE SIM SIT SO THE TO TOO TOP TWO UP US WAS WAY WE WHO WHY WIN YES "
        "YET YOU"
    )
)
