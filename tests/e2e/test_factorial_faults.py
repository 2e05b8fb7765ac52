"""Faults of servers, disks, users and hands: the right outcome, nothing lost, nobody left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.fake_run import ROOT, FakeFactorial, processes_of, wait_until


def test_max_launches_stops_at_a_boundary(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="4", cases=2)
    for expected, code in ((1, 12), (2, 12), (3, 0)):
        found, output = work.finish("--max-launches", "1")
        assert found == code, output
        assert len(list(work.run.glob("arms/*/*/server.json"))) == expected
    assert all(record["state"] == "complete" for record in work.records())


def test_a_server_that_cannot_start_shows_its_log_and_exits_3(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, on="args: [--dtype, banana]", concurrency="1", cases=1)
    code, output = work.finish()
    assert code == 3
    assert "Unknown dtype: banana" in output
    assert "server.log" in output
    assert "missing: " in output
    assert processes_of(work.run) == []


def test_a_level_that_is_not_in_effect_stops_the_run(tmp_path: Path) -> None:
    work = FakeFactorial(
        tmp_path, on="args: [--dtype, float16, --enable-foo]", concurrency="1", cases=1
    )
    work.env["VLLM_NO_SUCH_FLAG"] = "1"
    work.on = "args: [--no-enable-prefix-caching, --fake-ignores-dtype]"
    work.write_arms()
    code, output = work.finish()
    assert code == 0, output  # what the level asks for is in effect
    broken = FakeFactorial(
        tmp_path / "broken", on="env: {FAKE_ARM: x}, args: []", concurrency="1", cases=1, aa=False
    )
    text = broken.arms.read_text().replace("off: {args: [--dtype, float32]}", "off: {}")
    broken.arms.write_text(
        text.replace("on: {env: {FAKE_ARM: x}, args: []}", "on: {args: [--enable-prefix-caching]}")
    )
    code, output = broken.finish()
    # The server caches prefixes by default, so `off: {}` is no level at all.
    assert code == 3, output
    assert "level not in effect" in output
    assert "the server has it already" in output


def test_a_server_that_dies_in_a_cell(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", cases=2, env={"FAKE_FAULTS": '{"3": "die"}'})
    code, output = work.finish()
    assert code == 3
    states = Counter(record["state"] for record in work.records())
    assert states == {"complete": 3, "aborted": 3}
    assert "the server ended or stopped answering during the cell" in output
    assert output.count("missing: ") == 3
    assert processes_of(work.run) == []


def test_a_server_that_hangs_costs_its_launch_only(tmp_path: Path) -> None:
    faults = '{"1": "hang", "2": "hang"}'
    work = FakeFactorial(tmp_path, concurrency="1", aa=False, env={"FAKE_FAULTS": faults})
    code, output = work.finish("--request-timeout", "1")
    assert code == 3, output
    assert output.count("the server hangs: every stream timed out twice in a row") >= 2
    records = [(record["state"], record["rows"]) for record in work.records()]
    assert records == [("aborted", 2), ("aborted", 2)]
    assert len(work.asked()) == 4, "the third case is not waited for"


def test_a_server_that_freezes_at_the_end_of_a_cell(tmp_path: Path) -> None:
    """The last request's timeout is no answer of the cell: it is aborted, not complete."""
    work = FakeFactorial(
        tmp_path, concurrency="1", aa=False, env={"FAKE_FAULTS": '{"3": "freeze"}'}
    )
    code, output = work.finish("--request-timeout", "1")
    assert code == 3, output
    assert "the server ended or stopped answering during the cell" in output
    assert all(record["state"] != "complete" for record in work.records() if record["rows"])
    assert processes_of(work.run) == []


def test_errors_are_kept_and_never_asked_again(tmp_path: Path) -> None:
    faults = {"1": "status:503", "2": "reset", "3": "wrong_shape", "4": "status:429"}
    work = FakeFactorial(
        tmp_path, concurrency="1", aa=False, env={"FAKE_FAULTS": json.dumps(faults)}
    )
    code, output = work.finish()
    assert code == 0, output
    counts = [record["status_counts"] for record in work.records() if record["suite"] == "schema"]
    assert counts == [{"http_error": 1, "transport_error": 2}] * 2
    asked = work.asked()
    assert work.finish()[0] == 0
    assert work.asked() == asked
    rows = [row for rows in work.scores().values() for row in rows if row[1] == "unobserved"]
    # in each of two arms: three of schema's one reading, and one of each of gsm8k's three
    assert len(rows) == 2 * (3 + 3)


def test_a_failed_cache_reset_makes_the_cell_incomplete(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", cases=1, aa=False, env={"FAKE_RESET": "refuse"})
    code, output = work.finish("--max-launches", "1")
    assert code == 12
    assert {record["state"] for record in work.records()} == {"incomplete"}
    assert work.asked() == []
    assert "prefix cache could not be reset" in output


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(tmp_path: Path, times: int) -> None:
    work = FakeFactorial(tmp_path, env={"FAKE_DELAY_S": "0.4", "FAKE_CHILD": "1"}, concurrency="1")
    process = work.start()
    wait_until(lambda: len(work.asked()) >= 2)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == {1: 12, 2: 130}[times], output
    wait_until(lambda: not processes_of(work.run), timeout_s=40)
    states = [record["state"] for record in work.records()]
    assert states == ["aborted"]
    work.env["FAKE_DELAY_S"] = "0"


def test_ctrl_c_while_the_server_starts(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, env={"FAKE_START_S": "30"}, concurrency="1", cases=1)
    process = work.start()
    wait_until(lambda: processes_of(work.run))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 12, output
    assert processes_of(work.run) == []
    assert work.records() == []


def test_two_harnesses_on_one_run(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, env={"FAKE_DELAY_S": "0.5"}, concurrency="1", cases=1, aa=False)
    first = work.start()
    wait_until(lambda: len(work.asked()) >= 1)
    code, output = work.finish()
    assert code == 2
    assert f"in use by process {first.pid} on " in output
    first.kill()
    first.wait()
    wait_until(lambda: not processes_of(work.run), timeout_s=40)


def test_a_stubborn_server_and_its_child_are_killed(tmp_path: Path) -> None:
    env = {"FAKE_STUBBORN": "1", "FAKE_CHILD": "1", "FAKE_DELAY_S": "0.2"}
    work = FakeFactorial(tmp_path, env=env, concurrency="1", cases=1, aa=False)
    process = work.start()
    wait_until(lambda: len(work.asked()) >= 1)
    assert len(processes_of(work.run)) >= 2
    process.kill()
    process.wait()
    wait_until(lambda: not processes_of(work.run), timeout_s=60)


def test_damage_to_a_complete_cell_is_named_and_never_used(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", aa=False)
    assert work.finish()[0] == 0
    path = next(work.run.glob("responses/kernel/*/schema*.jsonl"))
    good = path.read_bytes()
    lines = good.splitlines(keepends=True)
    for damaged, said in (
        (good[:-20], "digest"),
        (good.replace(b"fake", b"fAke", 1), "line 1 is altered"),
        (lines[0] + lines[0] + b"".join(lines[1:]), "its digest is"),
        (b"".join(lines[:-1]), "its digest is"),
    ):
        path.write_bytes(damaged)
        code, output = work.finish()
        assert code == 2
        assert str(path) in output
        assert said in output
    path.write_bytes(good)
    assert work.finish()[0] == 0


def test_an_endpoint_stands_in_for_a_server(tmp_path: Path) -> None:
    key = "sk-planted-0123456789abcdef"
    log = tmp_path / "endpoint.log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fake_server", "--port", "0", "--dtype", "float32"],
            cwd=ROOT,
            env={"VLLM_API_KEY": key, "PATH": "/usr/bin", "FAKE_FAULTS": '{"2": "echo_key"}'},
            stdout=stream,
        )
    try:
        wait_until(lambda: "listening on" in log.read_text())
        url = log.read_text().rpartition("listening on ")[2].strip()
        work = FakeFactorial(tmp_path, concurrency="1", aa=False)
        work.arms.write_text(
            f"endpoint: {{base_url: '{url}', api_key_env: PLANTED_KEY}}\n"
            "factors:\n  build:\n    old: {}\n    new: {endpoint: {base_url: "
            f"'{url.replace('127.0.0.1', 'localhost')}', api_key_env: PLANTED_KEY}}}}\n"
            "control: {build: old}\naa: false\n"
        )
        code, output = finish_with(work, {"PLANTED_KEY": key})
        assert code == 0, output
        assert key not in output
        for path in work.run.rglob("*"):
            assert path.is_dir() or key.encode() not in path.read_bytes(), path
        bodies = [p.read_text() for p in work.run.glob("responses/*/*/*.jsonl")]
        assert any("key <redacted> refused" in body for body in bodies)
        code, output = finish_with(work, {})
        assert code == 3
        assert "PLANTED_KEY is empty or not set" in output
    finally:
        server.kill()
        server.wait()


def finish_with(work: FakeFactorial, env: dict[str, str]) -> tuple[int, str]:

    done = subprocess.run(
        work.command(),
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_too_few_open_files_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="64", cases=1)
    code = "import resource, sys, os; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 150)); "
    code += "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *work.command()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "150 open files are allowed, concurrency 64 needs 192" in done.stderr
    assert work.asked() == []


def test_a_read_only_run_and_bad_options_are_refused(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path)
    (tmp_path / "run").write_text("a file, not a folder")
    code, output = work.finish()
    assert (code, "cannot be created" in output) == (2, True), output
    (tmp_path / "run").unlink()
    work.concurrency = "0"
    assert work.finish()[0] == 2
    assert "Traceback" not in output
