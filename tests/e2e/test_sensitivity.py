"""The short version of `python -m tools.sensitivity`: one seed, a margin of 10 points, C16.

Two launches: the float32 server that other tests share too, and one of a quantised copy. The
harmless arm is the control's own server with its prefix cache full of these very prompts, which
is as much prefix caching as there can be. The fault is coarser than the ten points that
the command plants: it costs 9 of the 31 right answers and wins none, which 56 cases show and 36
did not (6 lost). More cases would not fit the server's prefix cache.
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from evalharness.bfcl import SUITE
from evalharness.data import KNOWN, locate
from evalharness.manifest import load_cases, load_manifest
from evalharness.nll.ask import ask
from evalharness.types import Case, RequestContext, Score
from evalharness.verdicts import judge
from evalharness.verdicts.inputs import OutcomeTable, PlanArm, PlanFacts
from evalharness.verdicts.types import RunVerdict
from tests.e2e.nll_arms import endpoint, float32_key
from tests.e2e.vllm_server import RunningServer, Servers
from tools.sensitivity.cases import Plan, recipe, write_manifest

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1500)]

SEED = 1
CONCURRENCY = 16
PLAN = Plan({"bfcl": 0.1}, discordance=0.02, alpha=0.025, power=0.8)
ARMS = ("control", "prefix", "weights")


@dataclass(frozen=True, slots=True)
class Asked:
    """The seed's cases, and how they are asked."""

    cases: Sequence[Case]
    context: RequestContext

    def scores(self, server: RunningServer) -> list[Score]:
        """Ask all cases at C16 and judge them by the official rules; in case order."""
        requests = [SUITE.request(case, self.context) for case in self.cases]
        responses = ask(endpoint(server), requests, concurrency=CONCURRENCY)
        score = SUITE.scorers["official/1"]
        return [score(case, one) for case, one in zip(self.cases, responses, strict=True)]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    if locate(KNOWN["bfcl"]) is None:
        pytest.skip("BFCL's cases are not here: evalharness data fetch bfcl")
    document = recipe("short", seed=SEED, sizes={"bfcl": PLAN.cases("bfcl")}, calibration=False)
    manifest = load_manifest(write_manifest(document, tmp_path_factory.mktemp("cases")))
    entry = manifest.entries["bfcl"]
    context = RequestContext("demo", "tools", entry.sampling, SEED, 0, entry.template)
    return Asked(load_cases(manifest)["bfcl"], context)


@pytest.fixture(scope="module")
def scores(
    asked: Asked,
    vllm_servers: Servers,
    demo_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Sequence[Score]]:
    from tools.demo_model.plant_fault import Quantise, plant

    control = vllm_servers.get(float32_key(demo_model))
    empty_prefix_cache(control)
    found = {"control": asked.scores(control)}
    hits = control.metric("vllm:prefix_cache_hits_total")
    found["prefix"] = asked.scores(control)
    # Most of every prompt came out of the cache, or the arm would test nothing.
    again = control.metric("vllm:prefix_cache_hits_total") - hits
    assert again > 100 * len(asked.cases), again
    bad = tmp_path_factory.mktemp("planted") / "bad"
    assert plant(demo_model, bad, quantise=Quantise(bits=4)) > 0
    found["weights"] = asked.scores(vllm_servers.get(float32_key(bad)))
    return found


@pytest.fixture(scope="module")
def judged(scores: Mapping[str, Sequence[Score]]) -> RunVerdict:
    codes = {"correct": 1, "wrong": 0, "unobserved": -1}
    table = OutcomeTable(
        suite="bfcl",
        mode="tools",
        concurrency=CONCURRENCY,
        manifest="short",
        scorer="official/1",
        arms=ARMS,
        case_ids=tuple(score.case_id for score in scores["control"]),
        outcomes=np.array(
            [[[codes[score.outcome] for score in scores[arm]]] for arm in ARMS], dtype=np.int8
        ),
    )
    return judge(plan(), [table], [])


def plan() -> PlanFacts:
    """Both arms against the control, gated on BFCL at C16, without an A/A launch."""
    off = (("prefix", "off"), ("weights", "good"))
    return PlanFacts(
        declared=True,
        changed=(),
        alpha=PLAN.alpha,
        margins=tuple(PLAN.margins.items()),
        nll_margins=(),
        gate_concurrency=(CONCURRENCY,),
        sequence="holm",
        arms=(
            PlanArm("control", off),
            PlanArm("prefix", (("prefix", "on"), off[1])),
            PlanArm("weights", (off[0], ("weights", "bad"))),
        ),
        factors=(("prefix", ("off", "on")), ("weights", ("good", "bad"))),
        control="control",
        aa=None,
        replays=1,
        suites=(("bfcl", "tools"),),
        seed=SEED,
    )


def empty_prefix_cache(server: RunningServer) -> None:
    """Drop what earlier tests left; the server runs in vLLM's development mode."""
    request = urllib.request.Request(
        f"{server.base_url}/reset_prefix_cache",
        method="POST",
        headers={"Authorization": f"Bearer {server.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.status == 200


@pytest.mark.parametrize(("arm", "verdict"), [("prefix", "admitted"), ("weights", "harm shown")])
def test_the_verdict_is_the_expected_one(
    judged: RunVerdict, scores: Mapping[str, Sequence[Score]], arm: str, verdict: str
) -> None:
    cell = next(one for one in judged.arms if one.arm == arm).cells[0]
    right = {name: sum(s.outcome == "correct" for s in scores[name]) for name in ("control", arm)}
    sys.stdout.write(f"{arm}: {cell.verdict}; {right} of {len(scores[arm])}; {cell.reason}\n")
    assert right["control"] >= len(scores["control"]) // 4  # else there is nothing to lose
    assert cell.verdict == verdict


def test_every_case_was_observed(scores: Mapping[str, Sequence[Score]]) -> None:
    for arm in ARMS:
        assert [s.reason for s in scores[arm] if s.outcome == "unobserved"] == []
    assert len(scores["control"]) == PLAN.cases("bfcl")
