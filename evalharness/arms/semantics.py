"""Checks of an arms file that its JSON Schema cannot make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from evalharness.arms.expand import arm_name, combinations
from evalharness.arms.yaml_read import Document, Path
from evalharness.errors import ArmsError
from evalharness.redact import is_secret_name
from evalharness.text import printable
from evalharness.types import AA, CONTROL

RESERVED_NAMES = (CONTROL, AA)
RESERVED_ARGS = {
    "--model": "set model.path",
    "--served-model-name": "set model.served_name",
    "--host": "servers listen on 127.0.0.1 only",
    "--port": "each launch takes a free port",
    "--uds": "servers listen on 127.0.0.1 only",
    "--api-key": "each launch has a random key",
    "--root-path": "the harness addresses the server directly",
    "--config": "options in a second file would escape the arm's digest",
}
RESERVED_ENV = {
    "VLLM_API_KEY": "each launch has a random key",
    "VLLM_SERVER_DEV_MODE": "the harness needs it on to reset the prefix cache between cells",
    "EVALHARNESS_ROUTE_HITS_DIR": "the harness collects the counters of each launch",
}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_semantics(document: Document) -> None:
    """Raise ArmsError naming every place where the file contradicts itself."""
    problems = [*_factors(document), *_control(document)]
    if not problems:
        problems = [*_listed(document), *_settings(document), *_targets(document)]
        problems += _served(document)
    if not problems:
        problems = [*_clashes(document), *_sequence(document), *_repeats(document)]
    if problems:
        raise ArmsError("\n".join(problems))


def _factors(document: Document) -> Iterator[str]:
    for factor, levels in document.data["factors"].items():
        if factor in RESERVED_NAMES:
            where = document.where(("factors", factor))
            yield f"{where}: {factor!r} is the name of an arm; give the factor another name"
        folded: dict[str, str] = {}
        for level in levels:
            if folded.setdefault(level.lower(), level) != level:
                where = document.where(("factors", factor, level))
                yield f"{where}: levels {folded[level.lower()]!r} and {level!r} differ only in case"


def _control(document: Document) -> Iterator[str]:
    control = document.data["control"]
    yield from _levels(document, ("control",), control)
    for factor, levels in document.data["factors"].items():
        if factor not in control:
            where = document.where(("control",))
            yield f"{where}: control has no level of {factor!r}; expected one of {_names(levels)}"


def _levels(document: Document, path: Path, chosen: Mapping[str, str]) -> Iterator[str]:
    factors = document.data["factors"]
    for factor, level in chosen.items():
        where = document.where((*path, factor))
        if factor not in factors:
            yield f"{where}: unknown factor {printable(factor)!r}; expected {_names(factors)}"
        elif level not in factors[factor]:
            yield (
                f"{where}: {factor} has no level {printable(level)!r}; "
                f"expected one of {_names(factors[factor])}"
            )


def _listed(document: Document) -> Iterator[str]:
    listed = document.data.get("arms", "full")
    if isinstance(listed, list):
        for index, chosen in enumerate(listed):
            yield from _levels(document, ("arms", index), chosen)


def _blocks(document: Document) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    yield ("server",), document.data.get("server", {})
    for factor, levels in document.data["factors"].items():
        for level, setting in levels.items():
            yield ("factors", factor, level), setting


def _settings(document: Document) -> Iterator[str]:
    for path, block in _blocks(document):
        for index, arg in enumerate(block.get("args", [])):
            flag = arg.split("=", 1)[0].replace("_", "-")
            if flag in RESERVED_ARGS:
                where = document.where((*path, "args", index))
                yield f"{where}: {flag} is the harness's own: {RESERVED_ARGS[flag]}"
        for name in block.get("env", {}):
            yield from _env(document.where((*path, "env", name)), name)


def _env(where: str, name: str) -> Iterator[str]:
    if not _ENV_NAME.fullmatch(name):
        yield f"{where}: {printable(name)!r} is not the name of an environment variable"
    elif name in RESERVED_ENV:
        yield f"{where}: {name} is the harness's own: {RESERVED_ENV[name]}"
    elif is_secret_name(name):
        yield (
            f"{where}: {name} looks like a secret, and an arms file is published with its run; "
            "export it in the harness's environment instead"
        )


def _targets(document: Document) -> Iterator[str]:
    for path in [(), *(path for path, _ in _blocks(document) if path != ("server",))]:
        block: Any = document.data
        for part in path:
            block = block[part]
        endpoint = block.get("endpoint")
        if endpoint is None:
            continue
        where = document.where((*path, "endpoint"))
        try:
            url = urlsplit(endpoint["base_url"])
            good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            good = False
        if not good:
            yield f"{where}: base_url: expected http(s)://host[:port], found another form"
        elif url.username or url.password or url.query or url.fragment:
            yield f"{where}: base_url: no user, password, query or fragment; use api_key_env"
        if not _ENV_NAME.fullmatch(endpoint.get("api_key_env", "X")):
            yield f"{where}: api_key_env: expected the NAME of an environment variable, not a key"
    if "model" in document.data and "endpoint" in document.data:
        yield f"{document.where(('endpoint',))}: give model or endpoint at the top, not both"


def _served(document: Document) -> Iterator[str]:
    """Yield each model whose folder has no name of its own to be served under."""
    base = document.data.get("model", {})
    blocks = [block for block in _blocks(document) if block[0] != ("server",)]
    for path, block in [((), document.data), *blocks]:
        model = block.get("model", base)
        named = model.get("served_name") or base.get("served_name")
        if "model" in block and not named and not PurePath(model["path"]).name:
            where = document.where((*path, "model"))
            yield f"{where}: model.path {model['path']!r} ends in no name; give model.served_name"


def _clashes(document: Document) -> Iterator[str]:
    for levels in combinations(document):
        chosen = {f: document.data["factors"][f][level] for f, level in levels.items()}
        yield from _one_arm(document, levels, chosen)
        if next(_one_arm(document, levels, chosen), None):
            return  # the same clash repeats in every arm


def _one_arm(
    document: Document, levels: Mapping[str, str], chosen: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    text = ", ".join(f"{factor}: {level}" for factor, level in levels.items())
    served = {"model", "endpoint"} & set(document.data)
    if not served and not any({"model", "endpoint"} & set(block) for block in chosen.values()):
        yield f"{document.where(())}: arm {{{text}}} has neither a model nor an endpoint"
    for key in ("model", "endpoint", "python"):
        setters = [factor for factor, block in chosen.items() if key in block]
        if len(setters) > 1:
            yield f"{document.where(('factors', setters[1]))}: {_both(setters)} set {key}"
    owner: dict[str, str] = {}
    for factor, block in chosen.items():
        names = [
            *block.get("env", {}),
            *(a.split("=")[0] for a in block.get("args", []) if a[:2] == "--"),
        ]
        for name in dict.fromkeys(names):
            if owner.setdefault(name, factor) != factor:
                where = document.where(("factors", factor, levels[factor]))
                yield f"{where}: {_both([owner[name], factor])} set {name}; one factor may"
    if any("endpoint" in block for block in (document.data, *chosen.values())):
        for factor, block in chosen.items():
            if {"env", "args", "python", "model"} & {key for key in block if block[key]}:
                where = document.where(("factors", factor, levels[factor]))
                yield f"{where}: a running endpoint cannot be given env, args, model or python"


def _both(factors: list[str]) -> str:
    return f"factors {factors[0]!r} and {factors[1]!r} both"


def _sequence(document: Document) -> Iterator[str]:
    data = document.data
    sequence = (data.get("plan") or {}).get("sequence", "holm")
    if sequence == "holm":
        return
    factors = {factor: list(levels) for factor, levels in data["factors"].items()}
    names = [arm_name(levels, data["control"], factors) for levels in combinations(document)]
    candidates = [name for name in names if name != CONTROL]
    for index, name in enumerate(sequence):
        where = document.where(("plan", "sequence", index))
        if name not in candidates:
            yield f"{where}: no arm {printable(name)!r}; expected one of {_names(candidates)}"
        elif name in sequence[:index]:
            yield f"{where}: arm {name!r} stands twice in the sequence"
    missing = [name for name in candidates if name not in sequence]
    if missing:
        where = document.where(("plan", "sequence"))
        yield f"{where}: the sequence lacks {_names(missing)}; name every arm, or write holm"


def _repeats(document: Document) -> Iterator[str]:
    plan = document.data.get("plan") or {}
    repeats, replays = plan.get("speed_repeats", 1), plan.get("replays", 1)
    if repeats > replays and document.data.get("order", "randomized") == "randomized":
        yield (
            f"{document.where(('plan', 'speed_repeats'))}: {repeats} repeats in one launch of each "
            "arm cannot tell the arm from the launch; write order: alternating"
        )


def _names(names: Any) -> str:
    return ", ".join(printable(str(name)) for name in names)
