"""Arguments of a call as they arrive: JSON text that should be one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalharness.bfcl.checker import Call
from evalharness.strict_json import JsonFault, check_utf8, parse_strict

# The official decoder reads these texts without complaint: to it, such a call is a call.
_OFFICIAL_DECODES = frozenset({"duplicate_key", "nan_or_infinity", "not_utf8"})


@dataclass(frozen=True, slots=True)
class Calls:
    """The decoded calls of a reply.

    fault: tag of the first call that is no well-formed call, "" if all are; then `calls` is
        complete.
    official_call: whether the official decoder would see function calls in the reply at all
        (rule 14 for irrelevance): it gives up on the whole reply where one call does not decode
        or is no object.
    """

    calls: tuple[Call, ...]
    fault: str
    official_call: bool


def decode_calls(raw: Sequence[tuple[Any, Any]]) -> Calls:
    """Return the decoded calls of (name, arguments) pairs; arguments are text or an object."""
    decoded = [_decode(name, arguments) for name, arguments in raw]
    faults = [fault for _, fault in decoded if fault]
    undecodable = any(fault.partition(":")[2] not in _OFFICIAL_DECODES for fault in faults)
    return Calls(
        calls=tuple(call for call, fault in decoded if not fault),
        fault=faults[0] if faults else "",
        official_call=bool(raw) and not undecodable,
    )


def _decode(name: Any, arguments: Any) -> tuple[Call, str]:
    nothing: Mapping[str, Any] = {}
    if name is not None and not isinstance(name, str):
        return (None, nothing), "malformed_call:name_not_text"
    if isinstance(arguments, str):
        try:
            check_utf8(arguments)
            arguments = parse_strict(arguments)
        except JsonFault as fault:
            return (name, nothing), f"malformed_arguments:{fault.kind}"
    if not isinstance(arguments, dict):
        return (name, nothing), "malformed_arguments:not_object"
    return (name, arguments), ""
