"""`evalharness nll` against a loopback server that answers as vLLM does, forcing or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evalharness.cli.main import build_parser, main
from evalharness.nll.request import FORCED_KEY
from tests.nll.answers import chunk, stream


class Handler(BaseHTTPRequestHandler):
    """Answers tokenize, chat and completions; `forcing` says whether it knows the processor."""

    forcing = True
    shift = 0.0
    seen: ClassVar[list[dict[str, Any]]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        kind, text = self._answer(body)
        payload = text.encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _answer(self, body: dict[str, Any]) -> tuple[str, str]:
        if self.path == "/tokenize":
            return "application/json", json.dumps({"tokens": [ord(c) for c in body["prompt"]]})
        if self.path == "/v1/chat/completions":
            choice = {"token_ids": [65, 66, 2], "finish_reason": "stop", "message": {}}
            answer = {"model": "demo", "choices": [choice], "prompt_token_ids": [1, 7]}
            return "application/json", json.dumps(answer)
        ids = body["vllm_xargs"][FORCED_KEY] if self.forcing else [3] * body["max_tokens"]
        values = [-1.0 - 0.01 * one - self.shift for one in ids]
        first = chunk(ids[:1], values[:1], prompt_token_ids=body["prompt"])
        rest = [chunk([i], [v]) for i, v in zip(ids[1:], values[1:], strict=True)]
        return "text/event-stream", stream(first, *rest)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[type[Handler]]:
    """A handler class of its own, so that a test may change its behaviour."""

    class Own(Handler):
        url = ""
        seen: ClassVar[list[dict[str, Any]]] = []

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    Own.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield Own
    httpd.shutdown()
    httpd.server_close()


def at(server: Any, *arguments: object) -> list[str]:
    """A command line with the server's address."""
    return ["nll", str(arguments[0]), "--base-url", server.url, "--model", "demo"] + [
        str(one) for one in arguments[1:]
    ]


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_capture_replay_compare(server: Any, tmp_path: Path, capsys: Any) -> None:
    text = tmp_path / "tale.txt"
    text.write_text("a lighthouse on a rock, ünïcode too", encoding="utf-8")
    cases = tmp_path / "cases.jsonl"
    sizes = ["--context", 8, "--continuation", 4, "--stride", 4]
    assert main(at(server, "capture", "--text", text, *sizes, "--out", cases)) == 0
    assert len(rows(cases)) == 6 and rows(cases)[0]["prompt_token_ids"] == [
        ord(c) for c in "a lighth"
    ]

    control, candidate = tmp_path / "control.jsonl", tmp_path / "candidate.jsonl"
    for path, shift in ((control, 0.0), (candidate, 0.25)):
        server.shift = shift
        replay = at(server, "replay", "--cases", cases, "--concurrency", 2, "--out", path)
        assert main(replay) == 0
    assert all(row["outcome"] == "observed" for row in rows(control))
    capsys.readouterr()
    assert main(["nll", "compare", str(control), str(candidate), "--out", str(tmp_path / "d")]) == 0
    told = capsys.readouterr().out
    assert "6 cases, 24 tokens" in told and "mean delta per token  +0.25" in told
    assert "largest |delta|" in told and "perplexity" in told


def test_captured_prompts_keep_their_ids_and_end(server: Any, tmp_path: Path) -> None:
    prompts, cases = tmp_path / "p.jsonl", tmp_path / "cases.jsonl"
    line = {"id": "one", "messages": [{"role": "user", "content": "hi"}]}
    prompts.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert main(at(server, "capture", "--prompts", prompts, "--out", cases)) == 0
    (row,) = rows(cases)
    assert row["prompt_token_ids"] == [1, 7] and row["continuation_token_ids"] == [65, 66, 2]


def test_a_manifests_cases_are_asked_with_its_own_sampling(
    server: Any, tmp_path: Path, capsys: Any
) -> None:
    manifest = Path(__file__).resolve().parents[2] / "manifests" / "smoke.json"
    cases = tmp_path / "cases.jsonl"
    asked = at(server, "capture", "--manifest", manifest, "--out", cases)
    assert main([*asked, "--entry", "gsm8k", "--concurrency", "2"]) == 0
    frozen = json.loads(manifest.read_text(encoding="utf-8"))["suites"]["gsm8k"]
    assert [row["id"] for row in rows(cases)] == [one["id"] for one in frozen["cases"]]
    (sampling,) = {
        json.dumps({k: body[k] for k in ("max_tokens", "temperature")}) for body in server.seen
    }
    assert json.loads(sampling)["max_tokens"] == frozen["sampling"]["max_tokens"]
    assert len({body["seed"] for body in server.seen}) == len(frozen["cases"])
    assert main([*asked, "--entry", "nothing"]) == 2
    assert "gsm8k" in capsys.readouterr().err


def test_a_server_that_does_not_force_is_refused_before_the_first_case(
    server: Any, tmp_path: Path, capsys: Any
) -> None:
    server.forcing = False
    cases = tmp_path / "cases.jsonl"
    row = {"id": "k", "prompt_token_ids": [1], "continuation_token_ids": [5]}
    cases.write_text(json.dumps(row) + "\n", encoding="utf-8")
    out = tmp_path / "o.jsonl"
    assert main(at(server, "replay", "--cases", cases, "--out", out)) == 3
    told = capsys.readouterr().err
    assert "did not force" in told and "--logits-processors" in told and "prefill" in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 1"), ("[]", "expected an object"), ('{"id": "x"}', "prompt_token_ids")],
)
def test_bad_case_files_name_the_place(
    server: Any, tmp_path: Path, capsys: Any, line: str, message: str
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(line + "\n", encoding="utf-8")
    assert main(at(server, "replay", "--cases", cases, "--out", tmp_path / "o")) == 2
    assert message in capsys.readouterr().err


def test_an_output_that_cannot_be_kept_is_refused_before_anything_is_asked(
    server: Any, tmp_path: Path, capsys: Any
) -> None:
    prompts, cases = tmp_path / "p.jsonl", tmp_path / "c.jsonl"
    prompts.write_text('{"id": "one", "prompt": "hi"}\n', encoding="utf-8")
    case = {"id": "k", "prompt_token_ids": [1], "continuation_token_ids": [5]}
    cases.write_text(json.dumps(case) + "\n", encoding="utf-8")
    before = prompts.read_bytes(), cases.read_bytes()
    for action, option, source in (("capture", "--prompts", prompts), ("replay", "--cases", cases)):
        for out in (tmp_path / "no/such/file", tmp_path, source):
            assert main(at(server, action, option, source, "--out", out)) == 2
            assert f"{out}: " in capsys.readouterr().err
    assert server.seen == []
    assert (prompts.read_bytes(), cases.read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ("capture", "--concurrency", "0"),
        ("capture", "--concurrency", "-1"),
        ("capture", "--timeout-s", "nan"),
        ("capture", "--timeout-s", "0"),
        ("capture", "--temperature", "nan"),
        ("capture", "--temperature", "-0.5"),
        ("capture", "--top-p", "1.5"),
        ("capture", "--max-tokens", "0"),
        ("capture", "--stride", "0"),
        ("replay", "--concurrency", "0"),
        ("replay", "--top-logprobs", "-1"),
        ("compare", "--tail-nats", "abc"),
        ("compare", "--tail-nats", ""),
        ("compare", "--tail-nats", "0.1,nan"),
        ("compare", "--seed", "-1"),
    ],
)
def test_a_number_that_never_could_work_is_a_usage_error(
    wrong: tuple[str, str, str], capsys: Any
) -> None:
    action, option, value = wrong
    ends = {
        "capture": ["--base-url", "u", "--model", "m", "--prompts", "p", "--out", "o"],
        "replay": ["--base-url", "u", "--model", "m", "--cases", "c", "--out", "o"],
        "compare": ["a", "b", "--out", "o"],
    }[action]
    with pytest.raises(SystemExit) as ended:
        main(["nll", action, *ends, option, value])
    assert ended.value.code == 2
    assert f"argument {option}: expected a" in capsys.readouterr().err


def test_thresholds_are_numbers_once_each_and_have_a_default() -> None:
    ends = ["nll", "compare", "a", "b", "--out", "o"]
    parser = build_parser()
    assert parser.parse_args(ends).tail_nats == (0.1, 0.5, 1.0)
    assert parser.parse_args([*ends, "--tail-nats", "2,0.5,2"]).tail_nats == (2.0, 0.5)
