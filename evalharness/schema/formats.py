"""The format checkers that a strict verdict needs, asserted rather than hoped for.

jsonschema silently ignores a format whose optional package is missing; a scorer that did so
would call wrong values right.
"""

from __future__ import annotations

from jsonschema import Draft202012Validator, FormatChecker

REQUIRED_FORMATS = (
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
)
# A value that each checker must refuse: an installed checker that refuses nothing is no checker.
REFUSED = {
    "date": "2024-02-30",
    "date-time": "2024-01-01",
    "duration": "1 day",
    "email": "nobody",
    "hostname": "-a",
    "idn-email": "nobody",
    "idn-hostname": "-a",
    "ipv4": "256.0.0.1",
    "ipv6": "1::2::3",
    "iri": "no scheme",
    "iri-reference": "\\\\",
    "json-pointer": "a",
    "regex": "(",
    "relative-json-pointer": "-1",
    "time": "25:00:00Z",
    "uri": "no scheme",
    "uri-reference": "\\\\",
    "uri-template": "{",
    "uuid": "1234",
}


def strict_format_checker() -> FormatChecker:
    """Return the 2020-12 checkers of exactly the required formats; others are ignored.

    Asserted in every draft. KeyError never: see `missing_formats`, which is asked first.
    """
    checkers = Draft202012Validator.FORMAT_CHECKER.checkers
    result = FormatChecker(formats=())
    result.checkers = {name: checkers[name] for name in REQUIRED_FORMATS if name in checkers}
    return result


def missing_formats() -> list[str]:
    """Return the required formats whose checker is not installed or refuses nothing."""
    checker = strict_format_checker()
    return [name for name in REQUIRED_FORMATS if checker.conforms(REFUSED[name], name)]
