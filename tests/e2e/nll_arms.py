"""Replays against the shared servers, each done once per session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evalharness.data import PACKAGED
from evalharness.nll import SUITE
from evalharness.nll.ask import Endpoint, ask
from evalharness.nll.capture import Prompt, capture_request, captured_rows, to_prompt
from evalharness.nll.request import PROCESSOR_ARGS
from evalharness.trace.session import profiler_arguments
from evalharness.types import Case, NllRow, RequestContext, Response, Sampling, canonical_json
from evalharness.verdicts import judge
from evalharness.verdicts.inputs import NllMargin, NllTable, PlanArm, PlanFacts
from evalharness.verdicts.types import RunVerdict
from tests.e2e.vllm_server import TRACES, LaunchKey, RunningServer, Servers

TOKENS = 8
CASES = 80
CONCURRENCY = 16
# In float32 the A/A replay differs by less than 1e-4 nats, so 0.02 is far out in the tail. With
# 80 cases and no token out there the share is bounded to 0.006: a smaller margin admits nobody.
MARGIN = NllMargin(mode="decode", nats_per_token=0.002, tail_nats=0.02, tail_share=0.01)
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
FLOAT32 = ("--dtype", "float32", *TOOLS, *PROCESSOR_ARGS)
Pair = tuple[list[NllRow], list[Response]]


def float32_key(model: Path) -> LaunchKey:
    """The launch that most tests share: float32, calls tools, forces tokens, can be profiled."""
    return LaunchKey(model, (*FLOAT32, *profiler_arguments(TRACES)))


def endpoint(server: RunningServer) -> Endpoint:
    """How `ask` reaches a server."""
    return Endpoint(server.base_url, server.model, server.api_key, 300.0)


def context(mode: str, *, max_tokens: int = TOKENS, top: int = 0) -> RequestContext:
    """A request context for the served name."""
    extra = canonical_json({"top_logprobs": top})
    return RequestContext("demo", mode, Sampling(0.0, 1.0, max_tokens, extra), 7, 0, "nll/1")


def replay(
    server: RunningServer,
    cases: list[Case],
    mode: str,
    *,
    concurrency: int,
    max_tokens: int = TOKENS,
) -> Pair:
    """Score the cases on a server; rows and responses in case order."""
    asked = [SUITE.request(case, context(mode, max_tokens=max_tokens)) for case in cases]
    responses = ask(endpoint(server), asked, concurrency=concurrency)
    score = SUITE.token_scorers[SUITE.default_scorer]
    rows = [score(case, one) for case, one in zip(cases, responses, strict=True)]
    assert SUITE.annotate_cell is not None
    return SUITE.annotate_cell(rows, responses, concurrency=concurrency), responses


def values(rows: list[NllRow]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All log-probabilities in order; a test that has a null among them fails here."""
    lost = [(row.case_id, row.reason) for row in rows if row.outcome != "observed"]
    assert not lost, f"unobserved: {lost[:5]}"
    return np.array([value for row in rows for value in row.logprobs], dtype=np.float64)


def eighty_prompts() -> list[Prompt]:
    """The packaged prompts and word problems, then passages of the packaged text, 80 in all."""
    rows = [json.loads(line) for line in _lines("nll_prompts.jsonl")]
    for number, line in enumerate(_lines("word_problems.jsonl")):
        content = json.loads(line)["question"]
        rows.append({"id": f"wp-{number}", "messages": [{"role": "user", "content": content}]})
    sentences = (PACKAGED / "nll_text.txt").read_text(encoding="utf-8").split(". ")
    for number in range(CASES - len(rows)):
        rows.append({"id": f"text-{number}", "prompt": sentences[number]})
    return [to_prompt(row) for row in rows]


def _lines(name: str) -> list[str]:
    return (PACKAGED / name).read_text(encoding="utf-8").splitlines()


@dataclass
class Bench:
    """The shared servers and what was captured on and replayed against them."""

    servers: Servers
    model: Path
    folder: Path
    done: dict[tuple[str, str], Pair] = field(default_factory=dict)
    captured: dict[str, list[Case]] = field(default_factory=dict)

    def server(self, arm: str) -> RunningServer:
        """The server of an arm: `control`, or the name of a planted model's folder."""
        model = self.model if arm == "control" else self.folder / arm
        return self.servers.get(float32_key(model))

    def continuations(self, kind: str) -> list[Case]:
        """The control's own 80 continuations, `greedy` or `sampled`."""
        if kind not in self.captured:
            heat = 0.0 if kind == "greedy" else 0.9
            rows = self.capture("control", temperature=heat)
            self.captured[kind] = [SUITE.to_case(row["id"], row) for row in rows]
        return self.captured[kind]

    def capture(self, arm: str, *, temperature: float) -> list[dict[str, Any]]:
        """80 continuations of an arm as rows."""
        prompts = eighty_prompts()
        sampling = Sampling(temperature, 1.0, TOKENS)
        seeds = list(range(len(prompts)))
        requests = [
            capture_request(prompt, model="demo", sampling=sampling, seed=seed)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        answers = ask(endpoint(self.server(arm)), requests, concurrency=CONCURRENCY)
        rows, skipped = captured_rows([one.prompt_id for one in prompts], answers, seeds=seeds)
        assert not skipped, skipped
        return rows

    def replayed(self, arm: str, kind: str) -> Pair:
        """Forced decode of the captured continuations at C16. `aa` and `same` are the control's
        server asked again."""
        if (arm, kind) not in self.done:
            cases = self.continuations(kind)
            server = self.server("control" if arm in ("aa", "same") else arm)
            self.done[arm, kind] = replay(server, cases, "decode", concurrency=CONCURRENCY)
        return self.done[arm, kind]

    def judged(self, arm: str, kind: str) -> RunVerdict:
        """The product's own verdict of one arm against the control and its A/A replay."""
        names = ("control", arm, "aa")
        replays = [self.replayed(name, kind)[0] for name in names]
        cases = replays[0]
        sizes = np.array([len(row.token_ids) for row in cases], dtype=np.int64)
        logprobs = np.array([[values(rows)] for rows in replays])
        table = NllTable(
            mode="decode",
            concurrency=CONCURRENCY,
            manifest="captured",
            scorer=SUITE.default_scorer,
            arms=names,
            case_ids=tuple(row.case_id for row in cases),
            sizes=sizes,
            token_ids=np.array([t for row in cases for t in row.token_ids], dtype=np.int64),
            logprobs=logprobs,
            observed=np.ones((len(names), 1, len(cases)), dtype=np.bool_),
        )
        return judge(plan(arm), [], [table])


def plan(arm: str) -> PlanFacts:
    """A plan of one candidate, gated on nll.decode alone."""
    off, on = (("fault", "off"),), (("fault", "on"),)
    return PlanFacts(
        declared=True,
        changed=(),
        alpha=0.025,
        margins=(),
        nll_margins=(MARGIN,),
        gate_concurrency=(CONCURRENCY,),
        sequence="holm",
        arms=(PlanArm("control", off), PlanArm(arm, on), PlanArm("aa", off)),
        factors=(("fault", ("off", "on")),),
        control="control",
        aa="aa",
        replays=1,
        suites=(("nll", "decode"),),
        seed=7,
    )
