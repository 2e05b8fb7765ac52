"""Final-answer readings of a reply: strict, flexible and numeric. Pure; linear in the text.

strict, flexible: lm-evaluation-harness, task gsm8k version 3.0 (filters and exact_match).
numeric: the last number, compared as an exact decimal.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

NOT_FOUND = "[invalid]"

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_PREFIX = re.compile(r"(?s).*#### ")
_FINAL_DOT = re.compile(r"\.$")
_CURRENCY = r"\\?[$\u20ac\u00a3\u00a5]"
_NUMBER = re.compile(
    rf"(?:(?<![0-9A-Za-z_)\]}}])[-\u2212](?:{_CURRENCY})?|{_CURRENCY}[-\u2212]?)?"
    r"([0-9]+(?:,[0-9]+)*(?:\.[0-9]+)?|(?<![0-9A-Za-z.)\]}])\.[0-9]+)"
)

_GOLD = re.compile(r"([-+]?)([0-9]+\.?[0-9]*|\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class Readings:
    """The three verdicts on one reply."""

    strict: bool
    flexible: bool
    numeric: bool


def read_answer(output: str, gold: str) -> Readings:
    """Return the three verdicts on `output` (stop sequences already applied) against `gold`."""
    target = _normalised(gold)
    return Readings(
        strict=_normalised(_strict_text(output)) == target,
        flexible=_normalised(_flexible_text(output)) == target,
        numeric=_numeric(output, gold),
    )


def _strict_text(output: str) -> str:
    match = _STRICT.search(output)
    return match.group(1).strip() if match else NOT_FOUND


def _flexible_text(output: str) -> str:
    found = _FLEXIBLE.findall(output)
    return found[-1].strip() if found else NOT_FOUND


def _normalised(text: str) -> str:
    """Delete `,`, `$`, everything up to the last `#### ` and a final dot; lower-case."""
    text = text.replace(",", "").replace("$", "")
    if "#### " in text:  # without it the pattern finds nothing, in quadratic time
        text = _PREFIX.sub("", text)
    return _FINAL_DOT.sub("", text).lower()


def _numeric(output: str, gold: str) -> bool:
    found = deque(_NUMBER.finditer(output.rpartition("####")[2]), maxlen=1)
    target = _GOLD.fullmatch(gold.strip().replace(",", ""))
    if not found or target is None:
        return False
    last = found[0]
    sign = last.group(0)[: last.start(1) - last.start(0)]
    negative = "-" in sign or "\u2212" in sign
    value = _canonical(last.group(1).replace(",", ""), negative=negative)
    return value == _canonical(target.group(2), negative=target.group(1) == "-")


def _canonical(digits: str, *, negative: bool) -> tuple[bool, str, str]:
    """Return (negative, digits before, digits after the point), equal for equal numbers.

    Exact at any length: no leading zeros before, no trailing zeros after, zero never negative.
    """
    integer, _, fraction = digits.partition(".")
    integer, fraction = integer.lstrip("0"), fraction.rstrip("0")
    return negative and bool(integer or fraction), integer, fraction
