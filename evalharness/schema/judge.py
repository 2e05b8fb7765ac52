"""The strict rule: one schema, one reply text, one tag. Pure, but neither bounded nor isolated.

Hostile patterns can take forever and deep values exhaust the stack, so that only the worker
process calls this; everybody else goes through `evalharness.schema.isolation`.
Source: JSONSchemaBench's label rule (validator by `$schema`, formats of 2020-12 asserted) with
jsonschema 4.26.0, after RFC 8259 parsing without duplicate names.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import CannotDetermineSpecification, Unresolvable

from evalharness.schema.formats import strict_format_checker
from evalharness.strict_json import JsonFault, check_utf8, parse_strict

VALID = "valid"
# The best-matching error names the reason; finding it among all of a big value's errors costs
# time and changes no verdict.
MAX_ERRORS = 200
_LIMITS = frozenset({"too_deep", "number_too_long"})
# What evaluating a schema that is not a valid one raises, or one that wants the network.
_SCHEMA_FAULTS = (
    Unresolvable,
    CannotDetermineSpecification,
    jsonschema.exceptions.UndefinedTypeCheck,
    jsonschema.exceptions.UnknownType,
    re.error,
    ArithmeticError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Any: ...


def judge(schema_text: str, output: str, finish_reason: Any) -> str:
    """Return "valid", `finish_reason`, `json:<cause>`, `schema:<keyword>` or `judge:<cause>`.

    `judge:` means that there is no verdict: the schema itself cannot be evaluated.
    """
    if finish_reason != "stop":
        return "finish_reason"
    try:
        check_utf8(output)
        value = parse_strict(output)
    except JsonFault as fault:
        # The interpreter's limits are not the rule's: there, no verdict was reached.
        return f"{'judge' if fault.kind in _LIMITS else 'json'}:{fault.kind}"
    try:
        error = best_match(islice(_validator(schema_text).iter_errors(value), MAX_ERRORS))
    except _SCHEMA_FAULTS as fault:
        return f"judge:{_fault_name(fault)}"
    return VALID if error is None else f"schema:{_keyword(error)}"


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> _Validator:
    schema = json.loads(schema_text)
    default = jsonschema.Draft202012Validator
    named = isinstance(schema, dict) and isinstance(schema.get("$schema"), str)
    kind = jsonschema.validators.validator_for(schema, default=default) if named else default
    # The registry holds the meta-schemas and fetches nothing.
    validator: _Validator = kind(schema, format_checker=strict_format_checker(), registry=REGISTRY)
    return validator


def _fault_name(fault: Exception) -> str:
    if isinstance(fault, Unresolvable):
        return "unresolvable_ref"
    return "invalid_pattern" if isinstance(fault, re.error) else type(fault).__name__


def _keyword(error: ValidationError) -> str:
    return str(error.validator) if error.validator is not None else "false"
