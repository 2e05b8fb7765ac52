"""The AST rules of BFCL for Python documents: tags of one verdict, "valid" or the first fault.

Reproduces bfcl-eval 2026.3.23 (`ast_checker`, Language.PYTHON, underscore_to_dot False), its
oddities included: first-fit matching of parallel calls, `==` between numbers and booleans in
values, one level of item types. Rule numbers in comments are those of docs/scoring-rules.md.
Tags are the official error types, so that a verdict can be compared rule by rule.

Where the official code raises (a document without a type, a gold of an impossible shape),
this module raises too; `judge` turns that into a tag of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Call = tuple[str | None, Mapping[str, Any]]
Document = Mapping[str, Any]
Gold = Mapping[str, Mapping[str, Sequence[Any]]]

VALID = "valid"
# What indexing, len() or iteration over a document or gold of a wrong shape raises.
_RAISED = (
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    ValueError,
    RecursionError,
    StopIteration,  # a gold without a function name
)
_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_IGNORED = str.maketrans(dict.fromkeys(" ,./-_*^") | {"'": '"'})


def judge(
    category: str,
    *,
    functions: Sequence[Document],
    golds: Sequence[Gold],
    calls: Sequence[Call],
    match: Callable[[Sequence[Document], Sequence[Gold], Sequence[Call]], str] | None = None,
) -> str:
    """Return "valid" or the tag of the fault of well-formed `calls` against `golds`.

    `match` decides parallel categories; the default is the official first fit.
    Never raises: a document or gold that no rule can read gives `unjudgeable:<exception>`.
    """
    try:
        if "parallel" in category:
            return (match or first_fit)(functions, golds, calls)
        if "multiple" in category:
            if len(calls) != len(golds):
                return "multiple_function_checker:wrong_count"
            return check_call(find_document(functions, golds[0]), golds[0], calls[0])
        if len(calls) != 1:
            return "simple_function_checker:wrong_count"
        return check_call(functions[0], golds[0], calls[0])
    except _RAISED as error:
        return f"unjudgeable:{type(error).__name__}"


def first_fit(functions: Sequence[Document], golds: Sequence[Gold], calls: Sequence[Call]) -> str:
    """Rule 2: golds in order, each takes the first free call that satisfies it, no way back."""
    if len(calls) != len(golds):
        return "parallel_function_checker_no_order:wrong_count"
    free = list(calls)
    for gold in golds:
        document = find_document(functions, gold)
        for index, call in enumerate(free):
            if check_call(document, gold, call) == VALID:
                del free[index]
                break
        else:
            return "parallel_function_checker_no_order:cannot_find_match"
    return VALID


def fits(functions: Sequence[Document], gold: Gold, call: Call) -> bool:
    """Say whether one call satisfies one gold; False where no rule can read them."""
    try:
        return check_call(find_document(functions, gold), gold, call) == VALID
    except _RAISED:
        return False


def find_document(functions: Sequence[Document], gold: Gold) -> Document:
    """Return the first document with the gold's function name; KeyError if there is none."""
    name = next(iter(gold))
    for document in functions:
        if document["name"] == name:
            return document
    raise KeyError(name)


def check_call(document: Document, gold: Gold, call: Call) -> str:
    """Rules 3 to 6 for one call: name, required, unexpected and omitted parameters, values."""
    accepted = next(iter(gold.values()))
    properties = document["parameters"]["properties"]
    required = document["parameters"]["required"]
    name, arguments = call
    if name != document["name"]:
        return "simple_function_checker:wrong_func_name"
    for parameter in required:
        if parameter not in arguments:
            return "simple_function_checker:missing_required"
    for parameter, value in arguments.items():
        if parameter not in properties or parameter not in accepted:
            return "simple_function_checker:unexpected_param"
        tag = check_value(value, properties[parameter], accepted[parameter])
        if tag != VALID:
            return tag
    for parameter, values in accepted.items():
        if parameter not in arguments and "" not in values:
            return "simple_function_checker:missing_optional"
    return VALID


def check_value(value: Any, schema: Mapping[str, Any], accepted: Sequence[Any]) -> str:
    """Rules 7 to 13 for one parameter's value."""
    declared = schema["type"]
    expected = _TYPES[declared]
    items = _TYPES[schema["items"]["type"]] if declared in ("array", "tuple") else None
    if declared == "float" and type(value) is int:
        value = float(value)
    given, gold = type(value), _gold_type(accepted)
    if given is expected:
        if items is not None and not _items_fit(value, items, accepted):
            return "type_error:nested" if gold is list else "type_error:simple"
        variable = gold is not None and gold is not expected
    elif given is gold:
        variable = True
    else:
        return "type_error:simple"
    if not variable:
        if expected is str:
            return _check_string(value, accepted)
        if expected is dict:
            return _check_dict(value, accepted)
        if expected is list:
            return _check_list(value, accepted, of_dicts=items is dict)
    return VALID if value in accepted else "value_error:others"


def normalise(text: str) -> str:
    """Rule 10: drop spaces and `,./-_*^`, lower-case, make quotes double."""
    return text.translate(_IGNORED).lower()


def _gold_type(accepted: Sequence[Any]) -> type | None:
    """Rule 8: the type of the first accepted value that is not "", None if there is none."""
    for value in accepted:
        if value != "":
            return type(value)
    return None


def _items_fit(value: list[Any], items: type, accepted: Sequence[Any]) -> bool:
    """Rule 9: some accepted list lets every item through; anything but a list always does."""
    for candidate in accepted:
        if type(candidate) is not list:
            return True
        gold = _gold_type(candidate)
        if all(type(item) is items or type(item) is gold for item in value):
            return True
    return False


def _check_string(value: str, accepted: Sequence[Any]) -> str:
    text = normalise(value)
    for candidate in accepted:
        if type(candidate) is str and (candidate == value or normalise(candidate) == text):
            return VALID
    return "value_error:string"


def _check_list(value: list[Any], accepted: Sequence[Any], *, of_dicts: bool) -> str:
    if of_dicts:
        return _check_dicts(value, accepted)
    items = _normalised_items(value)
    for candidate in accepted:  # rule 11; a text counts as the list of its characters
        if type(candidate) is dict and candidate:
            raise KeyError(0)  # the official code indexes it as a list
        if _normalised_items(candidate) == items:
            return VALID
    return "value_error:list/tuple"


def _normalised_items(items: Sequence[Any]) -> list[Any]:
    return [normalise(item) if type(item) is str else item for item in items]


def _check_dict(value: Any, accepted: Sequence[Any]) -> str:
    """Rule 12: some accepted dict matches whole; the tag is the last one's fault."""
    tag = "dict_checker:unclear"
    for candidate in accepted:
        if candidate == "":
            continue
        tag = _dict_fault(value, candidate)
        if tag == VALID:
            break
    return tag


def _dict_fault(value: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    tag = VALID
    for key, given in value.items():
        if key not in candidate:
            tag = "value_error:dict_key"
            break
        options = candidate[key]
        if type(options) is dict and options:
            raise KeyError(0)  # the official code indexes it as a list
        given = normalise(given) if type(given) is str else given
        if given not in _normalised_items(options):
            tag = "value_error:dict_value"
            break
    for key, options in candidate.items():
        if key not in value and "" not in options:
            return "value_error:dict_key"
    return tag


def _check_dicts(value: list[Any], accepted: Sequence[Any]) -> str:
    """Rule 13: a list of dicts, in order, against one accepted list of the same length."""
    tag = "list_dict_checker:unclear"
    for candidate in accepted:
        if len(value) != len(candidate):
            tag = "value_error:list_dict_count"
            continue
        tag = VALID
        for index, item in enumerate(value):
            tag = _check_dict(item, [candidate[index]])
            if tag != VALID:
                break
        if tag == VALID:
            break
    return tag
