"""Regular expressions of string formats. Each contains only valid texts of its format, and the usual ones."""

from __future__ import annotations

_YEAR = r"[1-9]\d{3}"
_LEAP_YEAR = r"[1-9]\d(?:0[48]|[2468][048]|[13579][26])"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,4}}"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_CLOCK = r"T(?:\d{1,4}H(?:\d{1,4}M)?(?:\d{1,4}S)?|\d{1,4}M(?:\d{1,4}S)?|\d{1,4}S)"
_DAYS = r"(?:\d{1,4}Y(?:\d{1,4}M)?(?:\d{1,4}D)?|\d{1,4}M(?:\d{1,4}D)?|\d{1,4}D)"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK}|\d{{1,4}}W)",
    "email": rf"[A-Za-z0-9_+-]{{1,30}}(?:\.[A-Za-z0-9_+-]{{1,30}})?@{_LABEL}(?:\.{_LABEL}){{1,3}}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": rf"https?://{_HOST}(?::[1-9]\d{{0,3}})?(?:/[A-Za-z0-9._~/-]{{0,100}})?",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}
UNSUPPORTED = frozenset({
    "idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex", "relative-json-pointer",
    "uri-reference", "uri-template",
})  # fmt: skip
"""Formats that JSON Schema defines, but that are not supported. It says to ignore all others."""
