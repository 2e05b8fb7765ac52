"""Fresh mutations of gold-satisfying calls: what a scorer's every rule must judge alike."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from evalharness.bfcl.gold import oracle_calls

Calls = list[dict[str, Any]]
SCALARS: Sequence[Any] = (
    0,
    1,
    -1,
    2,
    5,
    5.0,
    0.5,
    10**30,
    True,
    False,
    None,
    "",
    " ",
    "x",
    "True",
    "5",
    [],
    {},
    [""],
    [1],
    [1.0],
    ["a", "b"],
    [[1]],
    [{}],
    {"a": 1},
    {"a": [1]},
    "New York, NY",
    10**400,
)


def mutated_rows(
    items: Sequence[Mapping[str, Any]], *, seed: int, count: int
) -> Iterator[dict[str, Any]]:
    """Yield `count` vector rows (`category`, `functions`, `gold`, `calls`) made from `items`.

    Row i depends on the seed and i alone. Items no call can satisfy start from no calls.
    """
    for index in range(count):
        rng = Random(f"{seed}:{index}")
        item = rng.choice(items)
        golds = item["gold"] or []
        oracle = oracle_calls(item["functions"], golds) or ()
        calls: Calls = [
            {"name": name, "arguments": copy.deepcopy(dict(arguments))}
            for name, arguments in oracle
        ]
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            rng.choice(_MUTATIONS)(rng, calls, item)
        yield {**item, "calls": calls}


def _alternative(rng: Random, calls: Calls, item: Mapping[str, Any]) -> None:
    """Take another accepted value, in full or as a member of its alternatives."""
    for call, gold in zip(calls, item["gold"] or [], strict=False):
        accepted = next(iter(gold.values()))
        for parameter, values in accepted.items():
            if values and rng.random() < 0.5:
                call["arguments"][parameter] = copy.deepcopy(rng.choice(values))


def _retype(rng: Random, calls: Calls, _item: Mapping[str, Any]) -> None:
    _edit_leaf(rng, calls, lambda value: _recast(rng, value))


def _replace(rng: Random, calls: Calls, _item: Mapping[str, Any]) -> None:
    _edit_leaf(rng, calls, lambda _value: copy.deepcopy(rng.choice(SCALARS)))


def _respell(rng: Random, calls: Calls, _item: Mapping[str, Any]) -> None:
    _edit_leaf(rng, calls, lambda value: _spell(rng, value) if isinstance(value, str) else value)


def _drop(rng: Random, calls: Calls, _item: Mapping[str, Any]) -> None:
    _edit_container(rng, calls, _drop_member)


def _add(rng: Random, calls: Calls, item: Mapping[str, Any]) -> None:
    names = [
        name for function in item["functions"] for name in function["parameters"]["properties"]
    ]
    name = rng.choice([*names, "unknown", ""])

    def edit(rng: Random, container: Any) -> None:
        if isinstance(container, dict):
            container[name] = copy.deepcopy(rng.choice(SCALARS))
        else:
            container.insert(rng.randint(0, len(container)), copy.deepcopy(rng.choice(SCALARS)))

    _edit_container(rng, calls, edit)


def _shuffle(rng: Random, calls: Calls, _item: Mapping[str, Any]) -> None:
    if rng.random() < 0.5:
        rng.shuffle(calls)
    else:
        _edit_container(rng, calls, lambda r, c: r.shuffle(c) if isinstance(c, list) else None)


def _recount(rng: Random, calls: Calls, item: Mapping[str, Any]) -> None:
    if calls and rng.random() < 0.4:
        del calls[rng.randrange(len(calls))]
    elif calls and rng.random() < 0.7:
        calls.append(copy.deepcopy(rng.choice(calls)))
    elif item["functions"]:
        calls.append({"name": rng.choice(item["functions"])["name"], "arguments": {}})


def _rename(rng: Random, calls: Calls, item: Mapping[str, Any]) -> None:
    if calls:
        call = rng.choice(calls)
        call["name"] = rng.choice(
            [
                call["name"].upper(),
                call["name"].replace(".", "_"),
                call["name"] + " ",
                *(function["name"] for function in item["functions"]),
            ]
        )


_MUTATIONS: Sequence[Callable[[Random, Calls, Mapping[str, Any]], None]] = (
    _alternative, _alternative, _retype, _retype, _replace, _respell, _respell, _drop, _add,
    _shuffle, _recount, _rename,
)  # fmt: skip


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value inside."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _edit_leaf(rng: Random, calls: Calls, edit: Callable[[Any], Any]) -> None:
    places = [place for call in calls for place in _places(call["arguments"])]
    if places:
        container, key = rng.choice(places)
        container[key] = edit(container[key])


def _edit_container(rng: Random, calls: Calls, edit: Callable[[Random, Any], None]) -> None:
    containers: list[Any] = [call["arguments"] for call in calls]
    for call in calls:
        containers += [
            container[key]
            for container, key in _places(call["arguments"])
            if isinstance(container[key], dict | list)
        ]
    if containers:
        edit(rng, rng.choice(containers))


def _drop_member(rng: Random, container: Any) -> None:
    if isinstance(container, dict) and container:
        del container[rng.choice(list(container))]
    elif container:
        del container[rng.randrange(len(container))]


def _recast(rng: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return rng.choice([int(value), str(value), str(value).lower()])
    if isinstance(value, int):
        return rng.choice([str(value), [value], bool(value), value + 1, float(value % 2**50)])
    if isinstance(value, float):
        return rng.choice([int(value), str(value), value + 0.1, [value]])
    if isinstance(value, str):
        return rng.choice([[value], {"value": value}, value.split(), None])
    if isinstance(value, list):
        return rng.choice([value[0] if value else None, str(value), [value], value + value])
    return rng.choice([str(value), [value], list(value) if isinstance(value, dict) else value])


def _spell(rng: Random, value: str) -> str:
    return rng.choice(
        [
            value.upper(),
            value.lower(),
            value + ".",
            " " + value,
            value.replace(" ", "_"),
            value.replace(" ", "\t"),
            value.replace("'", '"'),
            value.replace("-", "–"),
            value + "\u00a0",
            value[:-1],
            "",
            " ",
        ]
    )
