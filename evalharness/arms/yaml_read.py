"""YAML 1.2 text -> plain data, with the line of every key and item.

The document is built from the parser's nodes by hand: only mappings, lists and plain scalars
exist, so no tag can construct anything, and every error can name its line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from evalharness.errors import ArmsError
from evalharness.text import printable

Path = tuple[str | int, ...]
MAX_NODES = 20_000
MAX_DEPTH = 40
# Larger numbers, and .nan and .inf, have no place in plan.json.
LARGEST = 1e15
_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": lambda text: int(text.replace("_", ""), 0),
    "float": lambda text: float(
        text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
    ),
    "bool": lambda text: text.lower() == "true",
    "null": lambda _text: None,
}
# Neither a command line, an environment nor a UTF-8 file can hold these.
_NOT_TEXT = re.compile(r"[\0\ud800-\udfff]")


class Document:
    """Plain data of a YAML text and where each part stands.

    `data` holds dicts, lists, str, int, float, bool and None. `where(path)` names file and line.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines: dict[Path, int] = {(): 1}
        self._nodes = 0
        self.data = self._build(self._compose(text), ())

    def where(self, path: Path) -> str:
        """Return `file line N` of the deepest known part of the path."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._lines:
                return f"{self.name} line {self._lines[path[:length]]}"
        return self.name

    def _compose(self, text: str) -> Node | None:
        yaml = YAML(typ="safe", pure=True)
        try:
            return yaml.compose(io.StringIO(text))  # type: ignore[no-any-return]
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f" line {mark.line + 1}" if mark is not None else ""
            problem = printable(str(error.problem or error.context))
            raise ArmsError(f"{self.name}{line}: not YAML 1.2: {problem}") from error
        except (YAMLError, ValueError, RecursionError) as error:
            first = printable(str(error)).split("\n")[0]
            raise ArmsError(f"{self.name}: not YAML 1.2: {first}") from error
        except Exception as error:
            # The parser raises bare lookup errors on some texts.
            raise ArmsError(f"{self.name}: not YAML 1.2 ({type(error).__name__})") from error

    def _build(self, node: Node | None, path: Path) -> Any:
        if node is None:
            raise ArmsError(f"{self.name}: the file is empty; expected factors, control and model")
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise ArmsError(
                f"{self.where(path)}: too large or too deep; expected at most {MAX_NODES} nodes "
                f"(aliases counted each time) and {MAX_DEPTH} levels"
            )
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            self._check_tag(node, "seq", path)
            return [self._build(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        self._check_tag(node, "map", path)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = f"{self.name} line {key_node.start_mark.line + 1}"
            if not isinstance(key_node, ScalarNode):
                raise ArmsError(f"{line}: a key must be a word, found a {key_node.id}")
            key = key_node.value
            self._check_text(key, line)
            if str(key_node.tag) == f"{_TAG}merge":
                raise ArmsError(f"{line}: merge keys (<<) are not supported; write the keys out")
            if key in result:
                raise ArmsError(f"{line}: key {printable(key)!r} is given twice")
            self._lines[(*path, key)] = key_node.start_mark.line + 1
            result[key] = self._build(value_node, (*path, key))
        return result

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        kind = str(node.tag).removeprefix(_TAG)
        convert = _SCALARS.get(kind)
        if convert is None:
            raise ArmsError(
                f"{self.where(path)}: tag {printable(str(node.tag))} is not allowed; "
                "expected plain text, a number, true, false or null"
            )
        self._check_text(node.value, self.where(path))
        try:
            value = convert(node.value)
        except ValueError as error:
            raise ArmsError(
                f"{self.where(path)}: {printable(node.value)[:60]!r} reads as {kind} but is none; "
                "put it in quotes"
            ) from error
        # NaN compares with nothing, so it is refused too
        if isinstance(value, int | float) and not abs(value) <= LARGEST:
            raise ArmsError(
                f"{self.where(path)}: expected a number of at most {LARGEST:g} either way, found "
                f"{printable(node.value)[:60]}; if it is text, put it in quotes"
            )
        return value

    def _check_text(self, text: str, where: str) -> None:
        found = _NOT_TEXT.search(text)
        if found:
            raise ArmsError(
                f"{where}: {printable(text)[:60]!r} holds the character U+{ord(found[0]):04X}; "
                "expected text without NUL and without half a surrogate pair"
            )

    def _check_tag(self, node: Node, expected: str, path: Path) -> None:
        if str(node.tag) != f"{_TAG}{expected}":
            raise ArmsError(f"{self.where(path)}: tag {printable(str(node.tag))} is not allowed")
