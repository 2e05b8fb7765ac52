"""docs/sensitivity.md from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tools.sensitivity.cases import MAX_TOKENS, MOST_BYTES
from tools.sensitivity.launching import BAD, HARMLESS

COMMAND = (
    "python -m tools.sensitivity --model .demo/model --seeds {seeds} --faults {faults} \\\n"
    "    --dtype {dtype} --write docs/sensitivity.md"
)
WORDS = {HARMLESS: "prefix caching", BAD: "bad weights"}


def page(found: Mapping[str, Any], calibration: Mapping[str, Any]) -> str:
    """Return the page: plan, verdicts by seed, differences, A/A floor, how the fault was chosen."""
    parts = [
        _head(found),
        _planned(found["plan"]),
        _verdicts(found),
        _floor(found),
        _calibration(calibration, found),
        _again(found, calibration),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Mapping[str, Any]) -> str:
    seeds = len(found["seeds"])
    held = (
        "every verdict was the expected one"
        if found["as_expected"]
        else ("**not every verdict was the expected one**")
    )
    return (
        "# Sensitivity: is a known harm shown, a harmless flag admitted?\n\n"
        f"A gate that admits everything, or nothing, is worth nothing. So {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'} each drew the planned number of cases and ran a "
        "real factorial of four launches on vLLM's CPU build: the control, the control again "
        "(A/A), prefix caching, which harms nothing, and a copy of the model whose weights were "
        "quantised to lose about ten points on cases of its own (the seeds' tables say what it "
        f"lost there). In this run {held}. This page and "
        "[results/sensitivity.json](results/sensitivity.json) are written by the command below."
    )


def _planned(plan: Mapping[str, Any]) -> str:
    harm = plan["harm"]
    sizes = [
        f"| {name} | {_points(suite['margin'])} | {suite['cases']} |"
        for name, suite in plan["suites"].items()
    ]
    return "\n".join(
        [
            "## The plan\n",
            f"Cases by `evalharness plan` at {plan['discordance']:.0%} of cases differing by "
            f"chance, alpha {plan['alpha']:g} one-sided, {plan['power']:.0%} power (BFCL's rounded "
            f"up to four equal categories: simple, multiple, parallel, irrelevance), all at "
            f"C{plan['concurrency']}, greedy, official scorers:\n",
            "| suite | margin | cases |",
            "|---|---|---|",
            *sizes,
            "",
            f"An arm that loses {harm['lost']:.0%} and gains {harm['gained']:.0%} of the cases is "
            f"then shown harmful in BFCL with {harm['power']:.0%} probability (exact one-sided "
            f"sign test at Holm's strictest of {harm['contrasts']} contrasts, enumerated).\n",
            f"Prompts of at most {MOST_BYTES['bfcl']} bytes (schema: {MOST_BYTES['schema']}), "
            f"answers of at most {MAX_TOKENS['bfcl']} tokens: reading prompts is most of the time "
            "on two cores. Seeds draw independently from the same two thirds of the cases, so "
            "they share some; the seed also orders the launches.",
        ]
    )


def _verdicts(found: Mapping[str, Any]) -> str:
    lines = [
        "## Verdicts\n",
        "| seed | arm | verdict | suite | control | arm correct | wins | losses | difference "
        "(95%) | p admit | p harm (Holm) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for seed in found["seeds"]:
        verdicts = {row["arm"]: row["verdict"] for row in seed["arms"]}
        lines += [_cell_row(seed["seed"], cell, verdicts) for cell in seed["cells"]]
    minutes = sum(seed["seconds"] for seed in found["seeds"]) / 60
    lines.append(
        f"\nDifferences are arm minus control in points. The factorials took "
        f"{minutes:.0f} minutes (server starts and cells; the A/A run below "
        f"{found['floor']['seconds'] / 60:.0f} more) on {found['machine']['cpus']} cores "
        f"({found['machine']['processor']}), {found['dtype']}."
    )
    return "\n".join(lines)


def _cell_row(seed: int, cell: Mapping[str, Any], verdicts: Mapping[str, str]) -> str:
    table, n = cell["table"], sum(cell["table"].values())
    fields: list[object] = [
        seed,
        WORDS[cell["arm"]],
        f"**{verdicts[cell['arm']]}**",
        cell["suite"],
        f"{cell['control_correct']} of {n}",
        cell["candidate_correct"],
        table["wins"],
        table["losses"],
        f"{_signed(cell['estimate'])} ({_signed(cell['lower'])}, {_signed(cell['upper'])})",
        _p(cell["p"]),
        _p(cell["p_harm_adjusted"]),
    ]
    return _row(fields)


def _floor(found: Mapping[str, Any]) -> str:
    lines = [
        "## The A/A floor\n",
        "Two launches of the same arm on the same cases. Accuracy: cases whose outcome differs. "
        "Log-probability: forced decode of the same tokens, the second launch minus the first.\n",
    ]
    accuracy = [("floor run", one) for one in found["floor"]["aa"] if "table" in one]
    for seed in found["seeds"]:
        accuracy += [(f"seed {seed['seed']}", one) for one in seed["aa"] if "table" in one]
    lines += ["| run | suite | C | cases | differ | A/A passes |", "|---|---|---|---|---|---|"]
    lines += [_aa_row(name, one) for name, one in accuracy]
    noise = [one for one in found["floor"]["aa"] if "nll" in one]
    if noise:
        lines += [
            "\n| C | tokens | mean, nats | median | 99% | largest | over the tail's threshold |",
            "|---|---|---|---|---|---|---|",
            *(_nll_row(one) for one in noise),
        ]
    return "\n".join(lines)


def _aa_row(name: str, one: Mapping[str, Any]) -> str:
    table = one["table"]
    differ = table["wins"] + table["losses"]
    passes = "no" if one["failed"] else "yes"
    fields = [name, one["suite"], one["concurrency"], sum(table.values()), differ, passes]
    return _row(fields)


def _nll_row(one: Mapping[str, Any]) -> str:
    nll = one["nll"]
    numbers = [nll["estimate"], nll["quantile_50"], nll["quantile_99"], nll["largest"]["delta"]]
    texts = [f"{value:.1e}" for value in numbers]
    return _row([one["concurrency"], nll["tokens"], *texts, f"{nll['tail_share']:.2%}"])


def _calibration(calibration: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    fault = found["fault"]
    lines = [
        "## How the fault was chosen\n",
        "`tools/demo_model/plant_fault.py --quantise BITS:GROUP[:LAYERS]` rounds the layers' "
        "matrices to the nearest step, a scale per GROUP weights of a row (0: per output channel), "
        "in the first LAYERS layers (without it: all). One case in three, by a digest of its id, "
        "is kept for this choice; no seed draws from it.\n",
        f"C{calibration['concurrency']}, {calibration['dtype']}; in bold the one whose loss in "
        "BFCL is nearest to ten points:\n",
        "| BITS:GROUP:LAYERS | suite | cases | control | arm | wins | losses | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for point in calibration["points"]:
        name = f"**{point['fault']}**" if point["fault"] == fault else point["fault"]
        for suite, row in point["suites"].items():
            counts = [row[key] for key in ("cases", "control_correct", "correct")]
            counts += [row["wins"], row["losses"]]
            lines.append(_row([name, suite, *counts, _signed(row["difference"])]))
    return "\n".join(lines)


def _again(found: Mapping[str, Any], calibration: Mapping[str, Any]) -> str:
    command = COMMAND.format(
        seeds=",".join(str(seed["seed"]) for seed in found["seeds"]),
        faults=",".join(point["fault"] for point in calibration["points"]),
        dtype=found["dtype"],
    )
    plans = ", ".join(f"seed {s['seed']} `{s['plan_sha256'][:12]}`" for s in found["seeds"])
    return (
        f"## Again\n\n```\n{command}\n```\n\n"
        "`EVALHARNESS_DATA` must name a folder with JSONSchemaBench for the schema cases; without "
        "it BFCL alone is asked. The choice of the fault is done again where model, faults or "
        "dtype differ from the committed ones. Interrupted, the same command continues. Exit code "
        "1: a verdict was not the expected one. `tests/e2e/test_sensitivity.py` is the short "
        "version: one seed, a margin of 10 points, a fault that costs more.\n\n"
        f"Model: tensors' SHA-256 `{found['model_tensors_sha256'][:16]}`. Plans: {plans}."
    )


def _row(fields: Iterable[object]) -> str:
    return "| " + " | ".join(str(field) for field in fields) + " |"


def _points(share: float) -> str:
    return f"{100 * share:g} points"


def _signed(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:+.1f}"


def _p(value: float) -> str:
    return f"{value:.1e}" if value < 0.001 else f"{value:.3f}"
