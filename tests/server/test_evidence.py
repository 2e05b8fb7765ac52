"""A level is in effect only if the server's own words say so."""

from __future__ import annotations

import pytest

from evalharness.server.evidence import ServerWords, level_evidence, parse_args

CONFIG = {
    "cache_config": {"enable_prefix_caching": True, "block_size": 16},
    "model_config": {"dtype": "torch.bfloat16", "max_model_len": 2048},
}
LOG = "INFO non-default args: {'dtype': 'auto', 'logits_processors': ['a.b:C'], 'seed': 3}\n"


def words(**more: object) -> ServerWords:
    given: dict[str, object] = {"config": CONFIG, "log": LOG, **more}
    return ServerWords(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "in_effect"),
    [
        (["--enable-prefix-caching"], True),
        (["--no-enable-prefix-caching"], False),
        (["--dtype", "bfloat16"], True),
        (["--dtype=bfloat16"], True),
        (["--block-size", "16"], True),
        (["--block-size", "32"], None),
        (["--seed", "3"], True),
        (["--no-such-flag", "1"], None),
        (["--enable-prefix-caching", "--no-such-flag", "1"], None),
        (["--no-enable-prefix-caching", "--dtype", "bfloat16"], False),
    ],
)
def test_arguments(args: list[str], in_effect: bool | None) -> None:
    found = level_evidence({"on": {"args": args}, "off": {}}, "on", words())
    assert found["in_effect"] is in_effect, found
    assert found["level"] == "on"
    assert found["evidence"]


def test_an_empty_level_must_not_be_what_its_sibling_asks_for() -> None:
    factor = {"off": {}, "on": {"args": ["--enable-prefix-caching"]}}
    assert level_evidence(factor, "off", words())["in_effect"] is False
    without = {"cache_config": {"enable_prefix_caching": False}}
    assert level_evidence(factor, "off", words(config=without))["in_effect"] is True
    assert level_evidence(factor, "off", words(config={}))["in_effect"] is None


@pytest.mark.parametrize(
    ("name", "text", "more", "in_effect"),
    [
        ("VLLM_KNOWN", "1", {"env": {"VLLM_KNOWN": True}}, True),
        ("VLLM_KNOWN", "1", {"env": {"VLLM_KNOWN": False}}, False),
        ("VLLM_KNOWN", "a,b", {"env": {"VLLM_KNOWN": ["a", "b"]}}, True),
        ("OMP_NUM_THREADS", "2", {"process_env": {"OMP_NUM_THREADS": "2"}}, True),
        ("OMP_NUM_THREADS", "2", {"process_env": {}}, False),
        (
            "VLLM_TYPO",
            "1",
            {
                "process_env": {"VLLM_TYPO": "1", "VLLM_PLUGINS": ""},
                "log": "WARNING Unknown vLLM environment variable detected: VLLM_TYPO",
            },
            False,
        ),
        (
            "VLLM_MINE",
            "1",
            {
                "process_env": {"VLLM_MINE": "1", "VLLM_PLUGINS": "mine"},
                "log": "WARNING Unknown vLLM environment variable detected: VLLM_MINE",
            },
            None,
        ),
        ("VLLM_MINE", "1", {"routes": [{"flags": {"VLLM_MINE": True}}]}, True),
        ("VLLM_MINE", "0", {"routes": [{"flags": {"VLLM_MINE": True}}]}, False),
        (
            "VLLM_MINE",
            "1",
            {"routes": [{"flags": {"VLLM_MINE": True}}, {"flags": {"VLLM_MINE": False}}]},
            False,
        ),
    ],
)
def test_variables(name: str, text: str, more: dict[str, object], in_effect: bool | None) -> None:
    found = level_evidence({"on": {"env": {name: text}}, "off": {}}, "on", words(**more))
    assert found["in_effect"] is in_effect, found


def test_a_level_with_another_model() -> None:
    factor = {"a": {"model": {"path": "/m/a"}}, "b": {"model": {"path": "/m/b"}}}
    served = words(models=[{"id": "x", "root": "/m/a"}])
    assert level_evidence(factor, "a", served)["in_effect"] is True
    assert level_evidence(factor, "b", served)["in_effect"] is False


def test_an_empty_level_beside_one_with_another_model() -> None:
    factor = {"none": {}, "planted": {"model": {"path": "/m/fault"}}}
    assert level_evidence(factor, "none", words(models=[{"root": "/m/a"}]))["in_effect"] is True
    assert (
        level_evidence(factor, "none", words(models=[{"root": "/m/fault"}]))["in_effect"] is False
    )


def test_parse_args() -> None:
    args = ["--a", "1", "--no-b", "--c=x=y", "--d", "e", "f", "-tp", "2", "--g"]
    assert parse_args(args) == [
        ("a", "1"),
        ("b", "false"),
        ("c", "x=y"),
        ("d", "e f -tp 2"),
        ("g", "true"),
    ]
