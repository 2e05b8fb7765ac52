"""Sections beside the verdict: token facts, first differences, load, provenance, limits."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from evalharness.errors import PlanError
from evalharness.noninferiority import Asked
from evalharness.report import report_document, write_report
from evalharness.report.answers import cut_answer
from evalharness.report.markdown import render_markdown
from evalharness.report.md_text import code, plain
from evalharness.report.texts import divergence, first_difference
from evalharness.report.tokens import kl_top
from evalharness.runs import load_run
from evalharness.store.lines import decode_line, encode_line
from evalharness.types import CellKey
from tests.nll.answers import decoded, prefilled
from tests.report.plant import (
    BFCL,
    GSM8K,
    NLL,
    Plant,
    SuiteSpec,
    even,
    paired,
    plant_run,
    write_sums,
)

ONE_FACTOR = {"hc": ("off", "on")}
NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
SMALL_NLL = SuiteSpec("nll", "decode", 60, "nll", "raw/1")


def report(run: Path) -> dict[str, Any]:
    """Return the document of a planted run."""
    return report_document([run], Asked())


def test_kl_of_equal_lists_is_zero_and_of_known_ones_is_known() -> None:
    p = {"1": math.log(0.7), "2": math.log(0.2)}
    assert kl_top(p, p) == 0
    q = {"1": math.log(0.5), "2": math.log(0.3)}
    known = 0.7 * math.log(0.7 / 0.5) + 0.2 * math.log(0.2 / 0.3) + 0.1 * math.log(0.1 / 0.2)
    assert kl_top(p, q) == pytest.approx(known)


def test_kl_over_part_of_the_tokens_is_a_lower_bound() -> None:
    p = {"1": math.log(0.6), "2": math.log(0.3), "3": math.log(0.1)}
    q = {"1": math.log(0.3), "2": math.log(0.3), "3": math.log(0.4)}
    whole = kl_top(p, q)
    for missing in p:
        part = kl_top(p, {token: v for token, v in q.items() if token != missing})
        assert 0 <= part <= whole + 1e-12


@pytest.mark.parametrize(
    ("control", "arm", "place"),
    [("abc", "abc", None), ("abc", "abd", 2), ("abc", "xbc", 0), ("abc", "ab", 2), ("", "a", 0)],
)
def test_first_difference(control: str, arm: str, place: int | None) -> None:
    assert first_difference(("character", control), ("character", arm)) == place


def test_texts_of_other_units_are_not_compared() -> None:
    found = divergence({"a": ("token", (1, 2))}, [("a", ("character", "12"))])
    assert found["compared"] == 0
    assert found["quantiles"] == []


def test_where_texts_part_is_reported_per_cell(tmp_path: Path) -> None:
    def answers(key: CellKey, index: int, outcome: str) -> str:
        return f"0123456789{'x' if key.arm == 'hc' and index < 20 else ''}"

    document = report(plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR, answers=answers)))
    rows = {(r["arm"], r["concurrency"]): r for r in document["first_difference"]}
    assert rows["aa", 1]["identical"] == 80
    assert rows["hc", 4]["identical"] == 60
    assert rows["hc", 4]["quantiles"] == [10, 10, 10]
    assert rows["hc", 4]["unit"] == "character"


def test_token_sections_hold_what_was_planted(tmp_path: Path) -> None:
    def logprobs(key: CellKey, index: int) -> list[float | None]:
        values: list[float | None] = [-0.5] * 16
        if key.arm == "hc" and index == 7:
            values[3] = -3.5
        if key.arm == "hc" and index == 8:
            values[0] = None
        return values

    plant = Plant(
        suites=(SMALL_NLL,), factors=ONE_FACTOR, concurrency=(4,), logprobs=logprobs,
        margins={"nll.decode": NLL_MARGIN},
    )  # fmt: skip
    document = report(plant_run(tmp_path / "run", plant))
    (cell,) = document["nll"]["cells"]
    largest = cell["summary"]["largest"]
    assert (largest["case_id"], largest["position"]) == ("case-0007", 3)
    assert largest["delta"] == pytest.approx(3.0)
    perplexity = {row["arm"]: row for row in document["nll"]["perplexity"]}
    assert perplexity["control"]["perplexity"] == pytest.approx(math.exp(0.5))
    assert perplexity["hc"]["nulls"] == 1
    deltas = {row["arm"]: row for row in document["nll"]["deltas"]}
    assert deltas["aa"]["zero_share"] == 1
    assert deltas["hc"]["tokens"] == 60 * 16 - 1
    shares = dict(zip(deltas["hc"]["grid"], deltas["hc"]["above"], strict=True))
    assert shares[1.0] == pytest.approx(1 / 959)
    assert shares[10.0] == 0


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_the_extreme_tokens_text_is_the_servers_own(tmp_path: Path, mode: str) -> None:
    suite = SuiteSpec("nll", mode, 60, "nll", "raw/1")

    def logprobs(key: CellKey, index: int) -> list[float | None]:
        return [-0.5, -2.0 if key.arm == "hc" and index == 3 else -0.5, -0.5]

    plant = Plant(suites=(suite,), factors=ONE_FACTOR, concurrency=(4,), logprobs=logprobs)
    run = plant_run(tmp_path / "run", plant)
    entries = [{str(t): {"logprob": -1.0, "decoded_token": f"<t{t}>"}} for t in (7, 8, 9, 10, 11)]
    body = {
        "decode": decoded([-0.5, -2.0, -0.5], ids=[9, 10, 11]),
        "prefill": prefilled(entries, [7, 8, 9, 10, 11]),
    }[mode]
    replace_bodies(run, "hc", body)
    (cell,) = report(run)["nll"]["cells"]
    assert cell["summary"]["largest"]["position"] == 1
    assert cell["summary"]["largest"]["text"] == {"decode": "t10", "prefill": "<t10>"}[mode]


def replace_bodies(run: Path, arm: str, body: str) -> None:
    """Give every stored response of an arm another body, with checks and digests to match."""
    for file in run.glob(f"responses/{arm}/*/*.jsonl"):
        stored = [decode_line(line).response for line in file.read_bytes().split(b"\n")[:-1]]
        lines = [encode_line(dataclasses.replace(one, body=body)) for one in stored]
        file.write_bytes(b"".join(lines))
        record = file.with_name(file.name.replace(".jsonl", ".cell.json"))
        facts = json.loads(record.read_text())
        facts["responses_sha256"] = hashlib.sha256(b"".join(lines)).hexdigest()
        record.write_text(json.dumps(facts))
        checks = {
            r.case_id: decode_line(line[:-1]).check for r, line in zip(stored, lines, strict=True)
        }
        for scores in run.glob(f"scores/*/{arm}/{file.parent.name}/{file.name}"):
            rows = [json.loads(line) for line in scores.read_text().splitlines()]
            for row in rows:
                row["response_digest"] = checks[row["case_id"]]
            scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(run)


def test_tokens_that_are_not_the_controls_are_unobserved(tmp_path: Path) -> None:
    plant = Plant(
        suites=(SMALL_NLL,), factors=ONE_FACTOR, concurrency=(4,),
        margins={"nll.decode": NLL_MARGIN},
    )  # fmt: skip
    run = plant_run(tmp_path / "run", plant)
    (file,) = run.glob("scores/*/hc/*/*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[5]["token_ids"][2] += 1
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(run)
    document = report(run)
    (group,) = document["unobserved"]
    assert group["case_ids"] == ["case-0005"]
    assert "not the control's" in group["reason"]


def test_pairing_is_by_identity_whatever_the_order_of_lines(tmp_path: Path) -> None:
    plant = Plant(factors=ONE_FACTOR, outcomes=paired(correct=60, wins=2, losses=5, arms=("hc",)))
    run = plant_run(tmp_path / "run", plant)
    before = report(run)["cells"]
    for file in run.glob("scores/*/hc/*/*.jsonl"):
        file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    write_sums(run)
    assert report(run)["cells"] == before


def test_replays_of_one_run_estimate_excess_discordance(tmp_path: Path) -> None:
    plant = Plant(factors=ONE_FACTOR, replays=2)
    document = report(plant_run(tmp_path / "run", plant))
    assert document["design"]["replays"] == {"planned": 2, "found": 2}
    assert all(cell["excess"] is not None for cell in document["cells"])
    once = report(plant_run(tmp_path / "once", Plant(factors=ONE_FACTOR)))
    assert all("not estimable" in cell["excess_reason"] for cell in once["cells"])


def test_secrets_in_the_records_do_not_reach_the_report(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    secret = "sk-planted-0123456789"
    for file in run.glob("arms/*/*/server.json"):
        facts = json.loads(file.read_text())
        facts["env"]["OPENAI_API_KEY"] = secret
        facts["argv"] += ["--api-key", secret, f"--ssl-token={secret}"]
        file.write_text(json.dumps(facts))
    plan = json.loads((run / "plan.json").read_text())
    plan["arms"][0]["env"]["HF_TOKEN"] = secret
    (run / "plan.json").write_text(json.dumps(plan))
    for path in write_report(run):
        assert secret not in path.read_text()


def test_limits_name_low_concurrency_levels_without_proof_and_the_reach(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR, aa=False))
    for file in run.glob("responses/hc/*/*.cell.json"):
        record = json.loads(file.read_text())
        record |= {"running_samples": [1] * 9, "client_bound": True}
        file.write_text(json.dumps(record))
    for file in run.glob("arms/hc/*/server.json"):
        facts = json.loads(file.read_text())
        facts["levels"]["hc"]["in_effect"] = None
        file.write_text(json.dumps(facts))
    write_sums(run)
    document = report(run)
    text = "\n".join(document["cannot_say"])
    for words in (
        "4.7 points", "no A/A launch", "hc=on (hc)", "less than 80%", "client, not the server",
        "No token log-probabilities",
    ):  # fmt: skip
        assert words in text
    assert [r["reached_share"] for r in document["concurrency"] if r["arm"] == "hc"] == [1, 0.25]


def test_routes_are_summed_over_ranks(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    (file,) = run.glob("arms/hc/*/server.json")
    facts = json.loads(file.read_text())
    facts["route_hits"] *= 2
    file.write_text(json.dumps(facts))
    document = report(run)
    rows = {(r["kind"], r["m"]): r["hits"] for r in document["route_hits"]}
    assert rows == {("fallback: m", 1): 60, ("hit", 4): 240, ("hit", 8): 480, ("hit", 16): 960}
    text = render_markdown(document).replace("\\", "")
    assert "route `gdn_split` in hc: 1,680 hits at M 4, 8, 16; 60 fallback: m at M 1" in text


def test_route_hits_that_are_none_are_left_out_and_named(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    (file,) = run.glob("arms/hc/*/server.json")
    facts = json.loads(file.read_text())
    del facts["route_hits"][0]["routes"]
    file.write_text(json.dumps(facts))
    write_sums(run)
    document = report(run)
    assert document["route_hits"] == []
    assert any("route hits left out" in line for line in document["cannot_say"])


def test_a_margin_of_a_suite_reaches_its_entries(tmp_path: Path) -> None:
    words = SuiteSpec("words", "chat", 80, "gsm8k", "strict/1")
    plant = Plant(suites=(words,), factors=ONE_FACTOR, margins={"gsm8k": 0.1, "bfcl": 0.1})
    document = report(plant_run(tmp_path / "run", plant))
    assert document["design"]["margins"] == {"words.chat": 0.1}
    assert document["arms"][0]["verdict"] == "admitted"


def test_a_suite_without_a_margin_is_described_and_gates_nothing(tmp_path: Path) -> None:
    plant = Plant(suites=(BFCL, GSM8K), factors=ONE_FACTOR, outcomes=even)
    document = report(plant_run(tmp_path / "run", plant))
    gates = {cell["suite"]: cell["gate"] for cell in document["cells"]}
    assert gates == {"bfcl": True, "gsm8k": False}
    assert any("gsm8k (chat): no margin" in line for line in document["cannot_say"])


def test_two_nll_entries_of_one_mode_stay_apart(tmp_path: Path) -> None:
    longer = SuiteSpec("nll_long", "decode", 60, "nll", "raw/1")
    plant = Plant(
        suites=(SMALL_NLL, longer), factors=ONE_FACTOR, concurrency=(4,),
        margins={"nll.decode": NLL_MARGIN},
    )  # fmt: skip
    document = report(plant_run(tmp_path / "run", plant))
    assert [cell["mode"] for cell in document["nll"]["cells"]] == ["decode", "nll_long.decode"]
    assert all(cell["margin"] for cell in document["nll"]["cells"])


def test_markdown_cannot_be_left() -> None:
    attack = "a|b`c`<img src=x>\n# head [x](javascript:y) **b** \x1b[0m \u202e @all #1"
    for shown in (plain(attack), code(attack)):
        assert "\n" not in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert not re.search(r"(?<!\\)[|<`\[*#@]", plain(attack))
    assert code(attack).count("`") == 2
    assert "|" not in code(attack)


def test_markdown_names_flips_and_unobserved_cases(tmp_path: Path) -> None:
    def outcomes(key: CellKey, index: int) -> str:
        if key.arm == "hc" and index == 70:
            return "unobserved"
        return paired(correct=60, wins=1, losses=2, arms=("hc",))(key, index)

    plant = Plant(factors=ONE_FACTOR, concurrency=(1,), outcomes=outcomes)
    text = render_markdown(report(plant_run(tmp_path / "run", plant)))
    assert "losses: `case-0000`, `case-0001`" in text
    assert "wins: `case-0060`" in text
    assert "`case-0070`" in text
    assert "59 / 20 / 1" in text


def test_answers_are_cut_and_say_so() -> None:
    shown = cut_answer("x" * 10_000)
    assert (len(shown["text"]), shown["chars"], shown["cut"]) == (4_000, 10_000, True)
    assert cut_answer("\ud800")["text"] == "\\ud800"


def test_a_foreign_manifest_is_refused(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    (run / "manifest.json").write_text((run / "manifest.json").read_text() + "\n")
    with pytest.raises(PlanError, match="frozen with"):
        load_run(run)


def test_a_run_without_its_manifest_still_counts_cases_nobody_has(tmp_path: Path) -> None:
    plant = Plant(factors=ONE_FACTOR, drop=lambda key, index: index < 8)
    run = plant_run(tmp_path / "run", plant)
    (run / "manifest.json").unlink()
    write_sums(run)
    document = report(run)
    assert document["arms"][0]["verdict"] in ("incomplete", "undecided")
    assert sum(len(group["case_ids"]) for group in document["unobserved"]) == 8 * 3 * 2


def test_cases_that_a_scorer_excludes_are_listed_and_not_counted(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    for file in run.glob("scores/*/*/*/*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows[4] |= {"reason": "excluded:unpassable_gold", "outcome": "wrong"}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(run)
    document = report(run)
    assert {row["cases"] for row in document["counts"]} == {79}
    (group,) = document["excluded"]
    assert group["case_ids"] == ["case-0004"]
    assert "case-0004" in render_markdown(document)


def test_suite_of_nll_is_kept_out_of_the_counts(tmp_path: Path) -> None:
    plant = Plant(suites=(BFCL, NLL), factors=ONE_FACTOR, concurrency=(1,))
    assert {row["suite"] for row in report(plant_run(tmp_path / "r", plant))["counts"]} == {"bfcl"}


@pytest.mark.parametrize(
    ("runners", "said"),
    [
        ({"hc": "v2"}, "served by model runner v2, the control by model runner v1"),
        ({"hc": None}, "served by an unknown model runner, the control by model runner v1"),
        ({"control": "v2", "aa": "v2", "hc": "v2"}, ""),
        ({"control": None, "aa": None, "hc": None}, ""),
    ],
)
def test_forced_decode_is_compared_under_one_model_runner(
    tmp_path: Path, runners: dict[str, str | None], said: str
) -> None:
    prefill = SuiteSpec("nll2", "prefill", 60, "nll", "raw/1")
    plant = Plant(
        suites=(SMALL_NLL, prefill), factors=ONE_FACTOR, concurrency=(4,),
        margins={"nll.decode": NLL_MARGIN},
    )  # fmt: skip
    run = plant_run(tmp_path / "run", plant)
    for arm, runner in runners.items():
        for file in (run / "arms" / arm).glob("*/server.json"):
            file.write_text(json.dumps({**json.loads(file.read_text()), "runner": runner}))
    write_sums(run)
    document = report(run)
    decode, scored = (
        next(c for c in document["nll"]["cells"] if (c["mode"] == "decode") is wanted)
        for wanted in (True, False)
    )
    assert decode["verdict"] == ("incomplete" if said else "admitted")
    assert [row["reason"] for row in document["unobserved"]] == [f"{said}: not comparable"] * bool(
        said
    )
    assert scored["summary"]["cases"] == 60  # prefill needs no processor
