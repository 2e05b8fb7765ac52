"""What a pull request has to say of where its numbers come from, in a few lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evalharness.report.filters import rows_m
from evalharness.report.md_text import code, plain

Row = Mapping[str, Any]
SHORT = 12


def provenance_lines(document: Row) -> Iterator[str]:
    """Yield model, server, machine, margins, seeds and digests, the digests shortened.

    The whole digests, command lines and environments stand in report.json and the page.
    """
    yield "### Provenance"
    yield ""
    facts = document["provenance"]
    yield from (f"- {line}" for line in (*_runs(document), *_served(facts), *_routes(document)))
    yield f"- margins: {'; '.join(_margins(document['design'])) or 'none'}"
    yield from (f"- {line}" for line in _asked(document))
    arms = (f"{plain(arm['name'])} {_digest(arm['digest'])}" for arm in facts["arms"])
    yield f"- arms: {', '.join(arms)}"


def _digest(text: str) -> str:
    return code(text[:SHORT])


def _runs(document: Row) -> Iterator[str]:
    for run in document["provenance"]["runs"]:
        yield (
            f"plan {_digest(run['plan_sha256'])}, frozen {plain(run['created_utc'])}, harness "
            f"{plain(run['harness_version'])}, seed {run['seed']}, launch order "
            f"{plain(', '.join(run['order']))}"
        )


def _served(facts: Row) -> Iterator[str]:
    """Yield the models, the servers' versions and the machines, each once."""
    launches = facts["launches"]
    models = {code(arm["model_path"] or arm["endpoint"] or "unknown") for arm in facts["arms"]}
    weights = sorted(
        {
            f"{code(name)} {_digest(digest)}"
            for launch in launches
            for name, digest in launch["model_files"].items()
            if name.endswith((".safetensors", ".bin", ".gguf"))
        }
    )
    yield f"model {', '.join(sorted(models))}" + (f": {_few(weights)}" if weights else "")
    versions = _each(
        f"{launch['engine']} {launch['vllm_version'] or 'of unknown version'}, runner "
        f"{launch['runner'] or 'unknown'}"
        # a launch that was stopped before it answered says nothing
        for launch in [one for one in launches if one["vllm_version"]] or launches
    )
    yield f"served by {plain('; '.join(versions) or 'nothing that left a record')}"
    machines = _each(_machine(launch["node"]) for launch in launches)
    yield f"on {plain('; '.join(machines) or 'an unknown machine')}"
    kernels = {name: digest for launch in launches for name, digest in launch["kernels"].items()}
    if kernels:
        yield f"kernels: {_few([f'{code(n)} {_digest(d)}' for n, d in sorted(kernels.items())])}"


def _routes(document: Row) -> Iterator[str]:
    """Yield each kernel route's hits and fallbacks by arm, with the M they were seen at."""
    seen: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in document["route_hits"]:
        by_kind = seen.setdefault((row["arm"], row["route"]), {})
        by_kind.setdefault(row["kind"], []).append(row)
    for (arm, route), by_kind in seen.items():
        parts = (
            f"{sum(row['hits'] for row in rows):,} {'hits' if kind == 'hit' else kind} at M "
            f"{', '.join(_each(rows_m(row['m']) for row in rows))}"
            for kind, rows in sorted(by_kind.items(), key=lambda item: item[0] != "hit")
        )
        yield f"route {code(route)} in {plain(arm)}: {plain('; '.join(parts))}"


def _few(texts: Sequence[str], most: int = 4) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _machine(node: Row) -> str:
    cards = [str(card.get("name", "GPU")) for card in node["gpus"]]
    gpus = ", ".join(f"{cards.count(name)} x {name}" for name in _each(cards)) or "no GPU"
    driver = f", driver {node['driver']}" if node["driver"] else ""
    return f"{node.get('name') or node['host']}: {node['cpus']} CPU cores, {gpus}{driver}"


def _margins(design: Row) -> Iterator[str]:
    for name, margin in design["margins"].items():
        yield f"{plain(name)} {100 * margin:g} points"
    for row in design["nll_margins"]:
        yield (
            f"nll {plain(row['mode'])} mean ±{row['nats_per_token']:g} nats a token, and at most "
            f"{100 * row['tail_share']:g}% more tokens than A/A moved by over "
            f"{row['tail_nats']:g} nats"
        )


def _from(suite: Row) -> str:
    return f" of {code(suite['source'])}" if "source" in suite else ""


def _asked(document: Row) -> Iterator[str]:
    facts, scorers = document["provenance"], document["design"]["scorers"]
    yield (
        f"manifest {plain(facts['manifest']['name'])} {_digest(facts['manifest']['sha256'])}, "
        f"arms file {plain(facts['arms_file']['name'])} {_digest(facts['arms_file']['sha256'])}"
    )
    for name, suite in facts["suites"].items():
        sampling = suite["sampling"]
        modes = plain(", ".join(suite["modes"]))
        yield (
            f"{plain(name)}: {suite['cases']} cases{_from(suite)}, {modes}, "
            f"scorer {plain(scorers[name])}, temperature {sampling['temperature']:g}, at most "
            f"{sampling['max_tokens']} tokens"
        )
