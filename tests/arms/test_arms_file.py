"""The arms file: every mistake names its line; names, order and digests are as documented."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalharness.arms import ArmsFile, launch_order, load_arms_file, parse_arms, with_digests
from evalharness.errors import ArmsError

EXAMPLES = 300 * int(os.environ.get("EVALHARNESS_FUZZ", "1"))
GOOD = """\
model: {path: MODEL, served_name: demo}
server:
  args: [--max-model-len, "2048"]
  env: {OMP_NUM_THREADS: "2"}
factors:
  hc: {off: {env: {VLLM_HC: "0"}}, on: {env: {VLLM_HC: "1"}}}
  dtype: {f32: {args: []}, bf16: {args: [--dtype,bfloat16]}, f16: {args: [--dtype,auto]}}
control: {hc: off, dtype: f32}
plan:
  alpha: 0.025
  margins: {gsm8k: 0.1}
"""


def parse(text: str) -> ArmsFile:
    return parse_arms(text.encode(), "a.yaml")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_full_factorial_names_and_settings() -> None:
    file = parse(GOOD)
    assert [arm.name for arm in file.arms] == [
        "control",
        "dtype=bf16",
        "dtype=f16",
        "hc",
        "hc+dtype=bf16",
        "hc+dtype=f16",
    ]
    both = file.arm("hc+dtype=bf16")
    assert both.argv == ("--max-model-len", "2048", "--dtype", "bfloat16")
    assert dict(both.env) == {"OMP_NUM_THREADS": "2", "VLLM_HC": "1", "VLLM_PLUGINS": ""}
    assert file.arm("aa") == file.arm("control")


def test_off_and_on_stay_words() -> None:
    assert parse(GOOD).levels["hc"] == ("off", "on")


def test_partial_factorial_fills_in_the_control() -> None:
    file = parse(GOOD + "arms: [{hc: on}, {hc: on, dtype: f16}, {hc: off}]\n")
    assert [arm.name for arm in file.arms] == ["control", "hc", "hc+dtype=f16"]


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (
            ("hc: off, dtype: f32}", "hc: maybe, dtype: f32}"),
            8,
            "no level 'maybe'; expected one of off, on",
        ),
        (("hc: off, dtype: f32}", "dtype: f32}"), 8, "no level of 'hc'"),
        (("hc: off, dtype: f32}", "hc: off, dtype: f32, x: y}"), 8, "unknown factor 'x'"),
        (('"2048"', "2048"), 3, "expected text, found 2048 (put it in quotes)"),
        (('VLLM_HC: "1"', "VLLM_HC: 1"), 6, "expected text, found 1"),
        (("server:", "sever:"), 2, "unknown key \"sever\" in the file (did you mean 'server'?)"),
        (("  hc: {", "  aa: {"), 6, "'aa' is the name of an arm"),
        (("  hc: {", "  'h c': {"), 6, "expected a letter or digit"),
        (("alpha: 0.025", "alpha: 0.7"), 10, "expected less than 0.5"),
        (("gsm8k: 0.1", "gsm8k: ten"), 11, "expected a number or a mapping"),
        (('"2048"]', '"2048", --port, "80"]'), 3, "--port is the harness's own"),
        (('OMP_NUM_THREADS: "2"', 'VLLM_API_KEY: "s"'), 4, "VLLM_API_KEY is the harness's own"),
        (('OMP_NUM_THREADS: "2"', 'HF_TOKEN: "s"'), 4, "looks like a secret"),
        (("[--dtype,auto]", "[--dtype,auto"), 7, "not YAML 1.2"),
        (("alpha: 0.025", "alpha: 0.025\n  alpha: 0.05"), 11, "given twice"),
        (("alpha: 0.025", "alpha: 0.025\n  sequence: [hc, nope]"), 11, "no arm 'nope'"),
        (("alpha: 0.025", "alpha: 0.025\n  sequence: [hc]"), 11, "the sequence lacks"),
        (("margins: {", "margins: !!python/object:os.system {"), 11, "is not allowed"),
        (("gsm8k: 0.1", "gsm8k: .nan"), 11, "expected a number of at most 1e+15 either way, found"),
        (("gsm8k: 0.1", "nll: {nats_per_token: .inf}"), 11, "found .inf"),
        (("gsm8k: 0.1", "nll: {nats_per_token: 1e400}"), 11, "found 1e400"),
        (("gsm8k: 0.1", "gsm8k: 1e-17"), 11, "expected at least 1e-09"),
        (
            ("alpha: 0.025", "alpha: 0.025\n  gate_concurrency: [4, 4]"),
            11,
            "expected each value once",
        ),
        (("alpha: 0.025", "alpha: .nan"), 10, "found .nan"),
        (("alpha: 0.025", "alpha: 1e-17"), 10, "expected at least 1e-09, found 1e-17"),
        (
            ("alpha: 0.025", "alpha: 0.025\n  replays: 1001"),
            11,
            "expected at most 1000",
        ),
        (("server:", f"server:\n  ready_timeout_s: 1{'0' * 400}"), 3, "at most 1e+15"),
        (("name: demo", r'name: "a\0b"'), 1, "holds the character U+0000"),
        (("name: demo", r'name: "\ud800"'), 1, "holds the character U+D800"),
        (('"2048"', r'"20\048"'), 3, "holds the character U+0000"),
        (('{VLLM_HC: "0"}', r'{"VLLM_HC\udfff": "0"}'), 6, "holds the character U+DFFF"),
        (('{VLLM_HC: "0"}', r'{"VLLM_HC\n": "0"}'), 6, "is not the name of an environment"),
        (("path: MODEL", 'path: ""'), 1, "model.path: expected text that is not empty"),
        (("name: demo", 'name: ""'), 1, "model.served_name: expected text that is not empty"),
        (("server:", 'server:\n  python: ""'), 3, "python: expected text that is not empty"),
        (
            ("path: MODEL, served_name: demo", "path: ."),
            1,
            "'.' ends in no name",
        ),
        (('off: {env: {VLLM_HC: "0"}}', "off: {args: [--dtype, half]}"), 7, "both set --dtype"),
    ],
)
def test_mistakes_name_their_line(change: tuple[str, str], line: int, said: str) -> None:
    old, new = change
    assert old in GOOD
    with pytest.raises(ArmsError) as caught:
        parse(GOOD.replace(old, new))
    assert f"a.yaml line {line}" in str(caught.value)
    assert said in str(caught.value)


def test_several_mistakes_are_told_at_once() -> None:
    with pytest.raises(ArmsError) as caught:
        parse(GOOD.replace('"2048"', "2048").replace("alpha: 0.025", "alpha: x"))
    assert len(str(caught.value).splitlines()) == 2


def test_neither_model_nor_endpoint_is_refused() -> None:
    with pytest.raises(ArmsError, match="neither a model nor an endpoint"):
        parse(GOOD.replace("model: {path: MODEL, served_name: demo}\n", ""))


def test_an_endpoint_takes_no_flags() -> None:
    text = GOOD.replace(
        "model: {path: MODEL, served_name: demo}", "endpoint: {base_url: 'http://h:1'}"
    )
    with pytest.raises(ArmsError, match="cannot be given env, args"):
        parse(text)


def test_bad_endpoint_urls_are_refused() -> None:
    for url in ("ftp://h", "http://user:secret@h", "h:80", "http://h/?key=1", "http://[::1"):
        text = (
            "factors: {e: {a: {endpoint: {base_url: 'http://a'}}, "
            f"b: {{endpoint: {{base_url: '{url}'}}}}}}}}\ncontrol: {{e: a}}\n"
        )
        with pytest.raises(ArmsError, match="base_url") as caught:
            parse(text)
        assert "secret" not in str(caught.value)


def test_equal_arms_are_refused(model: Path) -> None:
    text = GOOD.replace("MODEL", str(model)).replace('VLLM_HC: "1"', 'VLLM_HC: "0"')
    with pytest.raises(ArmsError, match=r"same digest .* the levels of hc change neither"):
        with_digests(parse(text))


def test_digest_covers_the_model_and_the_files_it_names(model: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("a")
    text = GOOD.replace("MODEL", str(model)).replace(
        '"2048"]', f'"2048", --chat-template, "{template}"]'
    )
    first = with_digests(parse(text))[0].arm("control").digest
    assert with_digests(parse(text))[0].arm("control").digest == first
    template.write_text("b!")
    second = with_digests(parse(text))[0].arm("control").digest
    (model / "config.json").write_text('{"x": 1}')
    third = with_digests(parse(text))[0].arm("control").digest
    assert len({first, second, third}) == 3


def test_digest_ignores_where_the_run_lies_and_comments(model: Path) -> None:
    text = GOOD.replace("MODEL", str(model))
    one, other = with_digests(parse(text))[0], with_digests(parse("# note\n" + text))[0]
    assert [arm.digest for arm in one.arms] == [arm.digest for arm in other.arms]
    assert one.sha256 != other.sha256


def test_a_missing_model_and_a_missing_plugin_say_so(model: Path) -> None:
    with pytest.raises(ArmsError, match=r"model 'MODEL' not found from .* expected a local"):
        with_digests(parse(GOOD))
    text = GOOD.replace("MODEL", str(model)).replace(
        "OMP_NUM_THREADS: ", 'VLLM_PLUGINS: "no_such_plugin", OMP_NUM_THREADS: '
    )
    with pytest.raises(ArmsError, match="VLLM_PLUGINS names no_such_plugin"):
        with_digests(parse(text))


def test_launch_order_is_the_seeds() -> None:
    names = ["control", "a", "b", "a+b"]
    orders = {
        tuple(
            item.arm for item in launch_order(names, aa=True, order="randomized", seed=s, replays=2)
        )
        for s in range(50)
    }
    assert len(orders) > 25
    assert all(sorted(order) == sorted([*names, "aa"]) for order in orders)
    again = launch_order(names, aa=True, order="randomized", seed=3, replays=2)
    assert again == launch_order(
        list(reversed(names)), aa=True, order="randomized", seed=3, replays=2
    )


def test_blocked_order_holds_every_arm_once_a_block() -> None:
    launches = launch_order(["control", "a"], aa=True, order="blocked", seed=1, replays=3)
    assert len(launches) == 9
    for block in range(3):
        part = launches[3 * block : 3 * block + 3]
        assert sorted(launch.arm for launch in part) == ["a", "aa", "control"]
        assert {launch.replicates for launch in part} == {(block,)}


def test_the_packaged_example_and_the_demo_parse() -> None:
    root = Path(__file__).parents[2]
    for path in [
        root / "evalharness/formats/examples/arms.yaml",
        *sorted((root / "manifests/arms").glob("*.yaml")),
    ]:
        assert load_arms_file(path).arms[0].name == "control"


def test_aliases_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 9)]
    with pytest.raises(ArmsError, match="too large or too deep"):
        parse("\n".join(lines))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_arms_error(data: bytes) -> None:
    with pytest.raises(ArmsError):
        parse_arms(data, "fuzz.yaml")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_damage_to_a_good_file_parses_or_ends_in_an_arms_error(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    length = data.draw(st.integers(0, 20))
    insert = data.draw(st.text(alphabet="{}[]:,-#&*!|>'\"%@` \n\t\0ax1é\u202e", max_size=8))
    text = GOOD[:start] + insert + GOOD[start + length :]
    try:
        parse(text)
    except ArmsError as error:
        assert "\x1b" not in str(error)


def test_a_large_file_is_digested_again_once_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalharness.arms import file_digests

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "REMEMBERED_BYTES", 4)
    monkeypatch.setattr(file_digests, "_known", {})
    path = tmp_path / "weights"
    path.write_bytes(b"first")
    first = file_digests.file_digest(path)
    assert first == hashlib.sha256(b"first").hexdigest()
    file_digests._known.clear()
    assert file_digests.file_digest(path) == first, "from the cache on disk"
    path.write_bytes(b"other")
    os.utime(path, ns=(1, 1))
    assert file_digests.file_digest(path) == hashlib.sha256(b"other").hexdigest()
    cache = tmp_path / "cache" / "evalharness" / "file-digests.json"
    for damage in ("", "[]", '{"x": 1}', "\x00"):
        cache.write_text(damage)
        file_digests._known.clear()
        assert file_digests.file_digest(path) == hashlib.sha256(b"other").hexdigest()
