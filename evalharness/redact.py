"""What is secret by its name, and how a record shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

REDACTED = "<redacted>"
_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEYS?|ACCESS_KEY(_ID)?|PRIVATE_KEY|"
    r"SECRET_KEY|AUTH)$",
    re.I,
)
_SECRET_FLAG = re.compile(r"^--[a-z-]*(api-key|token|secret|password)$")


def is_secret_name(name: str) -> bool:
    """Say whether an environment variable's name says that its value is secret."""
    return _SECRET.search(name) is not None


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the record: values of secret names replaced, sorted by name."""
    return {
        name: REDACTED if is_secret_name(name) else value for name, value in sorted(env.items())
    }


def redact_argv(argv: Sequence[str]) -> list[str]:
    """Return the arguments for the record: the value of a secret flag replaced."""
    shown: list[str] = []
    for index, arg in enumerate(argv):
        flag, equals, _ = arg.partition("=")
        if equals and _SECRET_FLAG.match(flag):
            shown.append(f"{flag}={REDACTED}")
        elif index and _SECRET_FLAG.match(argv[index - 1]):
            shown.append(REDACTED)
        else:
            shown.append(arg)
    return shown
