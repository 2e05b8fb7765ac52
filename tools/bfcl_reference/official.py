"""bfcl-eval's own AST checker, loaded from the wheel without its heavy dependencies.

The wheel is imported as a zip. Only the modules that the Python rules do not need (model list,
Java and JavaScript converters) are replaced by empty stand-ins.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MODEL = "reference"
_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "bfcl_eval.constants.model_config": {
        "MODEL_CONFIG_MAPPING": {MODEL: types.SimpleNamespace(underscore_to_dot=False)}
    },
    "bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter": {
        "java_type_converter": None
    },
    "bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter": {"js_type_converter": None},
}
Checker = Callable[[Mapping[str, Any]], str]


def load_checker(wheel: Path) -> Checker:
    """Return row -> official tag ("valid", an error type, or `raises:<exception>`)."""
    if str(wheel) not in sys.path:
        sys.path.append(str(wheel))
    for name, members in _STAND_INS.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
    ast_checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON

    def check(row: Mapping[str, Any]) -> str:
        category = row["category"]
        calls = [{call["name"]: call["arguments"]} for call in row["calls"]]
        if "irrelevance" in category:
            return "irrelevance_error:decoder_success" if calls else "valid"
        return _tag(ast_checker.ast_checker, row, calls, python)

    return check


def _tag(
    ast_checker: Callable[..., Mapping[str, Any]],
    row: Mapping[str, Any],
    calls: Sequence[Mapping[str, Any]],
    language: Any,
) -> str:
    try:
        result = ast_checker(row["functions"], calls, row["gold"], language, row["category"], MODEL)
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        UnboundLocalError,
    ) as error:
        return f"raises:{type(error).__name__}"
    return "valid" if result["valid"] else str(result["error_type"])
