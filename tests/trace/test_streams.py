"""The profile starts after pure decode at C and stops before any stream ends, against a loopback
server that knows what it was doing; and every fault of a server has its own words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.cli.main import main
from evalharness.errors import HarnessError, IncompleteError, PlanError, ServerError, StoreError
from evalharness.trace.asked import Asked, prompt
from evalharness.trace.command import trace_run
from evalharness.trace.session import planned_arm, profiler_arguments, refuse_changed
from tests.trace.profiled_server import ProfiledServer

ROOT = Path(__file__).parents[2]
FORMATS = ROOT / "evalharness" / "formats"
STREAMS = 4


def make_run(folder: Path) -> Path:
    """A run directory with a plan, and nothing else."""
    plan = json.loads((FORMATS / "examples/plan.json").read_text())
    run = folder / "run"
    run.mkdir()
    (run / "plan.json").write_text(json.dumps(plan))
    return run


async def traced(
    folder: Path, *, outputs: int = 6, confirm: int = 8, timeout_s: float = 30.0, **planted: Any
) -> tuple[ProfiledServer, dict[str, Any], Path]:
    traces = folder / "traces"
    traces.mkdir()
    run = make_run(folder)
    asked = {
        "concurrency": STREAMS,
        "confirm": confirm,
        "outputs": outputs,
        "prompt_words": 5,
        "timeout_s": timeout_s,
    }
    async with ProfiledServer(traces, **planted) as server:
        running = {"base_url": server.base_url, "api_key_env": None, "trace_dir": traces}
        document, out = await asyncio.to_thread(
            trace_run, run, "control", asked=asked, running=running, say=lambda _text: None
        )
    return server, document, out


async def test_the_profile_waits_for_pure_decode_and_ends_before_the_streams(
    tmp_path: Path,
) -> None:
    server, document, out = await traced(tmp_path, slow_first_s=0.2)
    assert server.at_start is not None and server.at_stop is not None
    # The quick stream had decoded alone for long: that is no decode at C.
    assert server.at_start[0] > 20
    assert min(server.at_start) >= 1 + 8
    assert all(b - a >= 6 for a, b in zip(server.at_start, server.at_stop, strict=True))
    assert max(server.at_stop) < server.bodies[0]["max_tokens"]
    jsonschema.validate(document, json.loads((FORMATS / "trace.schema.json").read_text()))
    assert document["purity"]["pure"] is True
    assert document["purity"]["witnesses"] == ["annotations", "counters"]
    profile = document["profile"]
    assert profile["confirmed"] >= 8 and profile["profiled_outputs"][0] >= 6
    assert profile["prompt_tokens"] == [7, 7]
    assert document["run"]["arm"] == "control" and document["run"]["managed"] is False
    assert out == tmp_path / "run" / "trace" / "control" / "001"
    assert "arm control, C4" in (out / "trace.md").read_text()
    prompts = {body["prompt"] for body in server.bodies}
    assert len(prompts) == STREAMS and all(body["ignore_eos"] for body in server.bodies)


@pytest.mark.parametrize(
    ("faults", "error", "said"),
    [
        ("no_profile", ServerError, "start_profile: HTTP 404"),
        ("no_stream", ServerError, "a server without streaming cannot be traced"),
        ("error_event", ServerError, "planted"),
        ("foreign", IncompleteError, "1 of .* steps had prefill"),
        ("foreign,no_annotations", IncompleteError, "another client's prefill"),
        ("no_annotations,no_counters", IncompleteError, "nothing shows that no prefill"),
        ("no_trace", StoreError, "--trace-dir"),
    ],
)
async def test_every_fault_has_its_words(
    tmp_path: Path, faults: str, error: type[HarnessError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await traced(tmp_path, faults=frozenset(faults.split(",")))


@pytest.mark.parametrize("limit", [4, 12])
async def test_a_stream_that_ends_too_early_refuses_the_profile(tmp_path: Path, limit: int) -> None:
    """Before the gate opens (4 of 8 outputs), and while the profile runs (12 of 8 + 6)."""
    with pytest.raises(IncompleteError, match="a stream ended before the profile was over"):
        await traced(tmp_path, limit=limit)


async def test_it_gives_up_in_time(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match=r"of 8 confirmed outputs after 0\.5 s"):
        await traced(tmp_path, slow_first_s=20.0, timeout_s=0.5)


async def test_another_model_than_the_runs_is_refused(tmp_path: Path) -> None:
    arm = tmp_path / "run" / "arms" / "control" / "001"
    with pytest.raises(ServerError, match=r"/models/demo, the run's .* has /models/old"):
        traces = tmp_path / "traces"
        traces.mkdir()
        run = make_run(tmp_path)
        arm.mkdir(parents=True)
        known = json.loads((FORMATS / "examples/server.json").read_text())
        known.update(vllm_version=None, system_fingerprint=None, models=[{"root": "/models/old"}])
        (arm / "server.json").write_text(json.dumps(known))
        asked = {"concurrency": 2, "confirm": 2, "outputs": 2, "prompt_words": 3, "timeout_s": 9.0}
        async with ProfiledServer(traces) as server:
            running = {"base_url": server.base_url, "api_key_env": None, "trace_dir": traces}
            await asyncio.to_thread(
                trace_run, run, "control", asked=asked, running=running, say=lambda _text: None
            )


def test_an_arm_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    plan = json.loads((FORMATS / "examples/plan.json").read_text())
    plan["arms"][0]["model_path"] = str(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PlanError, match=r"digest is .* now and 111111111111 in the run's plan"):
        refuse_changed(planned_arm(plan, "control"))


def test_an_arm_that_the_run_has_not_is_named() -> None:
    plan = json.loads((FORMATS / "examples/plan.json").read_text())
    assert planned_arm(plan, "aa").name == "control"
    with pytest.raises(PlanError, match="--arm other: the run has control"):
        planned_arm(plan, "other")


def test_prompts_differ_and_repeat() -> None:
    made = [prompt(stream, 40) for stream in range(64)]
    assert len({text.split(" ", 2)[1] for text in made}) == 64
    assert made == [prompt(stream, 40) for stream in range(64)]


def test_a_stream_has_room_for_start_and_stop() -> None:
    asked = Asked("m", 16, confirm=32, outputs=20, prompt_words=9, timeout_s=1.0)
    assert asked.max_tokens > 32 + 2 * 20


def test_the_profiler_is_asked_for_without_stacks(tmp_path: Path) -> None:
    flag, text = profiler_arguments(tmp_path)
    config = json.loads(text)
    assert flag == "--profiler-config"
    assert config["torch_profiler_dir"] == str(tmp_path)
    assert config["torch_profiler_with_stack"] is False and config["ignore_frontend"] is True


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["trace"], 2, "give RUN and --arm"),
        (["trace", "RUN"], 2, "give RUN and --arm"),
        (["trace", "RUN", "--arm", "control"], 2, "plan.json: not found"),
        (["trace", "RUN", "--arm", "a", "--base-url", "http://127.0.0.1:1"], 2, "go together"),
        (["trace", "--file", "RUN/none.json"], 2, "--out DIR"),
        (["trace", "--file", "RUN/none.json", "--out", "RUN/out"], 2, "none.json: cannot be read"),
    ],
)
def test_wrong_arguments_have_their_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: int, said: str
) -> None:
    assert main([arg.replace("RUN", str(tmp_path / "run")) for arg in args]) == code
    assert said in capsys.readouterr().err


async def test_the_arms_own_server_is_started_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake vLLM ends its streams after a few outputs: refused, and the server is gone."""
    from evalharness.trace import session
    from tests.e2e.fake_run import processes_of
    from tests.fake_server import fake_python

    run = make_run(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    plan["arms"][0].update(python=str(fake_python(tmp_path)), served_name="fake")
    (run / "plan.json").write_text(json.dumps(plan))
    monkeypatch.setattr(session, "refuse_changed", lambda _arm: {})
    asked = {"concurrency": 2, "confirm": 50, "outputs": 2, "prompt_words": 3, "timeout_s": 60.0}
    with pytest.raises(IncompleteError, match="a stream ended before"):
        await asyncio.to_thread(trace_run, run, "control", asked=asked, say=lambda _text: None)
    record = json.loads((run / "trace/control/001/server.json").read_text())
    assert record["managed"] is True and "--profiler-config" in record["argv"]
    assert "profiler" in (run / "trace/control/001/server.log").read_text()
    assert processes_of(run) == []
