"""Make untrusted text safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: control characters as escapes, newlines kept.

    Case text, model output, server logs and replies can hold escape sequences; format
    characters (bidirectional overrides) and lone surrogates are escaped too.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )
