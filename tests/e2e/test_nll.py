"""NLL on a real vLLM (CPU build, float32): against transformers, decode against prefill, faults."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evalharness.nll import SUITE
from evalharness.nll.request import DECODE, PREFILL
from evalharness.nll.runner import runner_of_log
from evalharness.types import Case
from evalharness.verdicts.cell_types import NllCellVerdict
from tests.e2e.nll_arms import CASES, CONCURRENCY, TOKENS, Bench, replay, values
from tests.e2e.vllm_server import RunningServer, Servers

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]

TRANSFORMERS_NATS = 1e-3
# Measured on the CPU build in float32: see docs/nll.md.
DECODE_PREFILL_NATS = 1e-3


def say(text: str) -> None:
    """Put a measured number where `pytest -rP` shows it."""
    sys.stdout.write(text + "\n")


@pytest.fixture(scope="module")
def bench(
    vllm_servers: Servers, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bench:
    return Bench(vllm_servers, demo_model, tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def control(bench: Bench) -> RunningServer:
    return bench.server("control")


@pytest.fixture(scope="module")
def sequences(demo_model: Path) -> list[Case]:
    """50 sequences of 24 tokens from the packaged text, some of them not Latin."""
    from transformers import AutoTokenizer

    from evalharness.data import PACKAGED

    text = (PACKAGED / "nll_text.txt").read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(demo_model)(text)["input_ids"]
    starts = [*range(0, 45 * 36, 36), *range(len(ids) - 5 * 24, len(ids) - 23, 24)]
    return [
        token_case(f"s{i}", ids[at : at + 12], ids[at + 12 : at + 24])
        for i, at in enumerate(starts)
    ]


def token_case(name: str, prompt: list[int], continuation: list[int]) -> Case:
    """A case of ids."""
    return SUITE.to_case(name, {"prompt_token_ids": prompt, "continuation_token_ids": continuation})


def test_packaged_windows_are_the_tokenizers_own(demo_model: Path) -> None:
    from transformers import AutoTokenizer

    from evalharness.data import PACKAGED
    from evalharness.nll.windows import windows

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    for name, file, sizes in (
        ("nll-long-text", "nll_long", {"context": 8000, "continuation": 64, "stride": 500}),
        ("nll-text", "nll_demo", {"context": 48, "continuation": 16, "stride": 76}),
    ):
        text = (PACKAGED / f"{name.replace('-', '_')}.txt").read_text(encoding="utf-8")
        lines = (PACKAGED / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if row["origin"]["kind"] == "text"]
        made = list(windows(tokenizer(text)["input_ids"], name=name, **sizes))
        keys = ("prompt_token_ids", "continuation_token_ids")
        assert [[row[key] for key in keys] for row in made] == [
            [row[key] for key in keys] for row in rows
        ]


@pytest.fixture(scope="module")
def prefilled(control: RunningServer, sequences: list[Case]) -> np.ndarray:
    return values(replay(control, sequences, PREFILL, concurrency=4, max_tokens=12)[0])


def test_prefill_agrees_with_transformers_in_float32(
    demo_model: Path, sequences: list[Case], prefilled: np.ndarray
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from evalharness.nll.cases import tokens_of

    assert len(sequences) == 50
    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32).eval()
    tokens = [tokens_of(case) for case in sequences]
    ids = torch.tensor([[*one.prompt, *one.continuation] for one in tokens])
    with torch.inference_mode():
        logprobs = model(ids[:, :-1]).logits.log_softmax(-1)
    own = logprobs.gather(2, ids[:, 1:, None])[:, 11:, 0].double().numpy().reshape(-1)
    assert own.shape == prefilled.shape == (50 * 12,)
    worst = float(np.abs(own - prefilled).max())
    say(f"vLLM prefill against transformers, float32: max {worst:.2e} nats")
    assert worst < TRANSFORMERS_NATS
    assert float(prefilled.std()) > 0.5  # not a comparison of constants


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_forced_decode_agrees_with_prefill(
    control: RunningServer, sequences: list[Case], prefilled: np.ndarray, concurrency: int
) -> None:
    cases = sequences if concurrency > 1 else sequences[:10]
    rows, _ = replay(control, cases, DECODE, concurrency=concurrency, max_tokens=12)
    found = values(rows)
    worst = np.abs(found - prefilled[: len(found)])
    say(f"decode at C{concurrency} against prefill: max {worst.max():.2e}, mean {worst.mean():.2e}")
    assert worst.max() < DECODE_PREFILL_NATS


def test_odd_continuations(control: RunningServer, demo_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_model)

    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer(text)["input_ids"]
        return found

    end = tokenizer.eos_token_id
    whole = ids(" lighthouse keeper")
    letters = [token for letter in " lighthouse" for token in ids(letter)]
    assert letters != ids(" lighthouse")  # text would merge these; ids must not
    cases = [
        token_case("one token", ids("The"), ids(" tide")[:1]),
        token_case("split inside a word", ids("The light"), ids("house is")),
        token_case("letter by letter", ids("The"), letters),
        token_case("boundary that would merge", whole[:1], whole[1:]),
        token_case("part of a character", ids("東京")[:1], ids("東京")[1:]),
        token_case("emoji and accents", ids("naïve"), ids(" façade 🐋☀")),
        token_case("end of text inside", ids("Stop"), [end, *ids(" again"), end]),
    ]
    for mode in (PREFILL, DECODE):
        rows, _ = replay(control, cases, mode, concurrency=4, max_tokens=64)
        for case, row in zip(cases, rows, strict=True):
            assert (row.outcome, row.reason) == ("observed", "valid"), case.case_id
            assert None not in row.logprobs
    longer = token_case("longer than max_tokens", ids("The"), letters)
    rows, _ = replay(control, [longer], DECODE, concurrency=1, max_tokens=3)
    assert rows[0].token_ids == tuple(letters[:3]) and len(rows[0].logprobs) == 3


def test_a_token_outside_the_vocabulary_is_unobserved_and_kills_nobody(
    control: RunningServer,
) -> None:
    outside = token_case("outside", [5, 6], [10_000_000, 7])
    rows, _ = replay(control, [outside], DECODE, concurrency=1)
    assert rows[0].outcome == "unobserved"
    rows, _ = replay(control, [token_case("fine", [5, 6], [7])], DECODE, concurrency=1)
    assert rows[0].outcome == "observed"


def test_it_is_decode_by_the_servers_own_counters(control: RunningServer) -> None:
    cases = [token_case(f"d{i}", [40 + i, 50, 60], [70 + i] * 20) for i in range(CONCURRENCY)]
    names = {
        "generated": "vllm:generation_tokens_total",
        "prompt": "vllm:prompt_tokens_total",
        "steps": "vllm:iteration_tokens_total_count",
        "gaps": "vllm:inter_token_latency_seconds_count",
    }
    before = {key: control.metric(name) for key, name in names.items()}
    with running_maximum(control) as peak:
        rows, _ = replay(control, cases, DECODE, concurrency=CONCURRENCY, max_tokens=20)
    deadline = time.monotonic() + 60
    while True:  # the engine publishes its counters a step late, later still on a busy machine
        change = {key: control.metric(name) - before[key] for key, name in names.items()}
        if change["gaps"] >= 19 * CONCURRENCY or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert all(row.outcome == "observed" for row in rows)
    # The continuation was generated, not read as a prompt: 20 tokens each, prompts of 3 only.
    assert change["generated"] == 20 * CONCURRENCY and change["prompt"] == 3 * CONCURRENCY
    # One forward step per token of a stream; batched, so far fewer than one per token in all.
    assert 20 <= change["steps"] <= 20 * 4
    assert change["gaps"] == 19 * CONCURRENCY
    assert peak[0] == CONCURRENCY
    assert max(max(row.in_flight) for row in rows) == CONCURRENCY
    assert sum(sum(row.pure) for row in rows) > 0


class running_maximum:  # lower case: it reads as a statement
    """Samples the server's own count of running requests; the list's one entry is the largest."""

    def __init__(self, server: RunningServer) -> None:
        self._server, self._peak = server, [0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._peak[0] = max(
                self._peak[0], int(self._server.metric("vllm:num_requests_running"))
            )

    def __enter__(self) -> list[int]:
        self._thread.start()
        return self._peak

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_the_server_says_which_runner_served(control: RunningServer) -> None:
    assert runner_of_log(control.log.read_text("utf-8", "replace")) == "v1"


@pytest.fixture(scope="module")
def planted(bench: Bench, demo_model: Path) -> Iterator[Bench]:
    """Weight copies with one fault each."""
    from tools.demo_model.plant_fault import plant

    assert plant(demo_model, bench.folder / "head", head=1.05, layer=None) == 1
    assert plant(demo_model, bench.folder / "layer", head=None, layer=(15, 1.01)) == 7
    yield bench


def shown(bench: Bench, arm: str, kind: str) -> NllCellVerdict:
    """The arm's verdict in the one cell, its numbers said."""
    judged = bench.judged(arm, kind)
    cell = judged.arms[0].nll_cells[0]
    assert not judged.aa[0].failed, judged.aa[0].reason
    assert len(bench.continuations(kind)) == CASES
    say(f"{arm} {kind}: {cell.verdict}; {cell.reason}")
    return cell


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_the_control_again_is_admitted(planted: Bench, kind: str) -> None:
    assert shown(planted, "same", kind).verdict == "admitted"


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("fault", ["head", "layer"])
def test_a_planted_fault_is_found(planted: Bench, fault: str, kind: str) -> None:
    cell = shown(planted, fault, kind)
    assert cell.verdict != "admitted"
    assert cell.underlying == "harm shown"


def test_accuracy_cannot_see_a_scaled_head(planted: Bench) -> None:
    control = planted.continuations("greedy")
    faulty = [SUITE.to_case(row["id"], row) for row in planted.capture("head", temperature=0.0)]
    same = sum(a.expected == b.expected for a, b in zip(control, faulty, strict=True))
    say(f"greedy answers equal under the scaled head: {same} of {CASES}, {TOKENS} tokens each")
    assert same >= CASES - 2
