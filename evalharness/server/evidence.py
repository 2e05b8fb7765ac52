"""Is a level really in effect? Answered from the server's own words, never from ours.

Sources: the effective configuration and environment that vLLM reports (/server_info), its log,
and the environment of the process as the kernel shows it. A level that the server contradicts
stops the run; one that nothing proves is recorded as unproven (in_effect null).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ALIASES = {"half": "float16", "float": "float32", "true": "true", "1": "true", "0": "false"}
_UNKNOWN_ENV = re.compile(r"Unknown vLLM environment variable detected: (\w+)")


@dataclass(frozen=True, slots=True)
class ServerWords:
    """What a server says of itself.

    config: its effective configuration, nested. env: its VLLM_* settings. log: its log so far.
    process_env: the environment of its process. routes: route-hit files. models: /v1/models.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    process_env: Mapping[str, str] = field(default_factory=dict)
    routes: Sequence[Mapping[str, Any]] = ()
    models: Sequence[Mapping[str, Any]] = ()
    executable: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence; in_effect None means that nothing was shown either way."""

    in_effect: bool | None
    text: str


def level_evidence(
    factor: Mapping[str, Mapping[str, Any]], level: str, words: ServerWords
) -> dict[str, Any]:
    """Return {"level", "in_effect", "evidence"} of one factor's level (formats/server)."""
    setting = factor[level]
    findings = list(_findings(setting, words))
    if not findings:
        findings = list(_absence(factor, level, words))
    verdicts = [finding.in_effect for finding in findings]
    in_effect: bool | None = None
    if False in verdicts:
        in_effect = False
    elif verdicts and None not in verdicts:
        in_effect = True
    text = "; ".join(finding.text for finding in findings) or "nothing to check"
    return {"level": level, "in_effect": in_effect, "evidence": text[:2000]}


def _findings(setting: Mapping[str, Any], words: ServerWords) -> Iterator[Finding]:
    for name, value in parse_args(setting.get("args", [])):
        yield _argument(name, value, words)
    for name, text in setting.get("env", {}).items():
        yield _variable(name, text, words)
    if "model" in setting:
        roots = [str(model.get("root")) for model in words.models]
        path = setting["model"]["path"]
        yield Finding(path in roots, f"/v1/models: root {', '.join(roots)}")
    if "python" in setting:
        yield Finding(bool(words.executable) or None, f"process runs {words.executable}")
    if "endpoint" in setting:
        yield Finding(bool(words.models), f"{setting['endpoint']['base_url']} lists its models")


def parse_args(args: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, value) of arguments; `--no-x` gives (x, false), `--x` alone (x, true)."""
    pairs: list[tuple[str, str]] = []
    index = 0
    while index < len(args):
        flag, equals, value = args[index].partition("=")
        index += 1
        if not flag.startswith("-"):
            continue
        name = flag.lstrip("-").replace("-", "_")
        if equals:
            pairs.append((name, value))
            continue
        values = []
        while index < len(args) and not args[index].startswith("--"):
            values.append(args[index])
            index += 1
        if values:
            pairs.append((name, " ".join(values)))
        elif name.startswith("no_"):
            pairs.append((name[3:], "false"))
        else:
            pairs.append((name, "true"))
    return pairs


def _argument(name: str, value: str, words: ServerWords) -> Finding:
    wanted = normal(value)
    held = list(_lookup(words.config, name))
    for place, found in held:
        if normal(found) == wanted:
            return Finding(True, f"server configuration: {place}={_short(found)}")
    if held and wanted in ("true", "false"):
        place, found = held[0]
        return Finding(False, f"asked for {name}={wanted}, the server has {place}={_short(found)}")
    stated = re.search(rf"non-default args: .*'{re.escape(name)}': ('[^']*'|[^,}}]+)", words.log)
    if stated:
        return Finding(True, f"server log: non-default args: {name}={_short(stated.group(1))}")
    if held:
        place, found = held[0]
        return Finding(None, f"asked for {name}={value}, the server has {place}={_short(found)}")
    return Finding(None, f"the server shows nothing of {name}")


def _variable(name: str, text: str, words: ServerWords) -> Finding:
    if name in words.env:
        found = words.env[name]
        same = normal(found) == normal(text) or _joined(found) == text
        return Finding(same, f"server environment: {name}={_short(found)}")
    flags = [route["flags"][name] for route in words.routes if name in route.get("flags", {})]
    if flags:
        asked = normal(text) == "true"
        return Finding(all(flag is asked for flag in flags), f"plugin reports {name}={flags[0]}")
    given = words.process_env.get(name)
    if given != text:
        return Finding(False, f"{name} is not in the server's environment as asked")
    if name in _UNKNOWN_ENV.findall(words.log):
        if not words.process_env.get("VLLM_PLUGINS"):
            return Finding(False, f"vLLM does not know {name} and no plugin is enabled")
        return Finding(None, f"{name}={text} is in the process; no plugin has reported it yet")
    if name.startswith("VLLM_") and words.env:
        return Finding(None, f"{name}={text} is in the process, but vLLM does not list it")
    return Finding(True, f"process environment: {name}={_short(text)}")


def _absence(
    factor: Mapping[str, Mapping[str, Any]], level: str, words: ServerWords
) -> Iterator[Finding]:
    """Prove an empty level: what its sibling levels ask for must not be what the server has."""
    for sibling, setting in factor.items():
        if sibling == level:
            continue
        for name, value in parse_args(setting.get("args", [])):
            held = list(_lookup(words.config, name))
            same = [place for place, found in held if normal(found) == normal(value)]
            if same:
                text = f"level {sibling!r} asks for {name}={value}, and the server has it already"
                yield Finding(False, f"{text} ({same[0]})")
            elif held:
                yield Finding(True, f"server configuration: {held[0][0]}={_short(held[0][1])}")
        for name, text in setting.get("env", {}).items():
            here = words.process_env.get(name)
            yield Finding(here != text, f"process environment: {name} is {here or 'not set'}")
        if "model" in setting and words.models:
            roots = [str(model.get("root")) for model in words.models]
            yield Finding(setting["model"]["path"] not in roots, f"/v1/models: root {roots[0]}")


def _lookup(config: Any, name: str, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every entry of that name in the nested configuration."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            inner = f"{place}.{key}" if place else str(key)
            if key == name and not isinstance(value, Mapping):
                yield inner, value
            yield from _lookup(value, name, inner)


def normal(value: Any) -> str:
    """Return a value in one spelling: `True`, `1`, `torch.float16` and `half` have one each."""
    text = str(value).strip().strip("'\"").lower().removeprefix("torch.")
    return _ALIASES.get(text, text)


def _joined(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
