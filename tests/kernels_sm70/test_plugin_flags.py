"""The plugin without vLLM: flags, the format of route hits, the file that is kept current."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from kernels_sm70.vllm_hooks.flags import (
    CPU_REFERENCE,
    FLAGS,
    PluginError,
    cpu_reference_wanted,
    read_flags,
)
from kernels_sm70.vllm_hooks.route_hits import ProcessFacts, Writer, record

ROOT = Path(__file__).resolve().parents[2]
HC = "VLLM_SM70_QWEN38_BATCH_HC_FP16"
SCHEMA = json.loads((ROOT / "evalharness/formats/route_hits.schema.json").read_text())
FACTS = ProcessFacts(
    plugin_version="0.1.0",
    rank=1,
    vllm_version="0.32.0",
    device="cpu",
    flags={HC: True},
    flag_routes={HC: "hyper_connection"},
    kernels={"hyper_connection.sm_90": "4" * 64},
)


def test_every_flag_is_off_unless_set() -> None:
    assert set(read_flags({}).values()) == {False}
    assert not cpu_reference_wanted({})


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("1", True)])
def test_values(text: str, on: bool) -> None:
    flags = read_flags({HC: text})
    assert flags[HC] is on
    assert sum(flags.values()) == on


@pytest.mark.parametrize("text", ["true", "on", "yes", "2", " 1", "01"])
def test_another_value_is_refused(text: str) -> None:
    with pytest.raises(PluginError, match=f"{HC}='{text}'.*0 or 1"):
        read_flags({HC: text})


def test_a_misspelt_flag_is_refused() -> None:
    with pytest.raises(PluginError, match="unknown variable VLLM_SM70_QWEN38_BATCH_HC"):
        read_flags({"VLLM_SM70_QWEN38_BATCH_HC": "1"})


def test_the_reference_flag_has_values_too() -> None:
    with pytest.raises(PluginError, match=CPU_REFERENCE):
        cpu_reference_wanted({CPU_REFERENCE: "maybe"})


def test_with_all_flags_off_nothing_is_imported() -> None:
    code = (
        "import sys; from kernels_sm70 import plugin; plugin.register(); plugin.register(); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch', 'numpy')), "
        "plugin.active_session())"
    )
    environ = {**os.environ, **{flag.variable: "0" for flag in FLAGS}, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] None"


COUNTS = {
    "cuda:0": {
        "hyper_connection.hit": {"4": 120, "16": 3},
        "hyper_connection.sharded_hit": {"8": 2},
        "hyper_connection.fallback.m1": {"1": 30},
        "hyper_connection.fallback.prefill": {"24": 1, ">64": 7},
        "moe_grouped.fallback.contract": {"4": 5},
        "qsa_expand.rejected": {"0": 1},
    }
}


def test_a_record_follows_the_format() -> None:
    document = record(FACTS, COUNTS)
    jsonschema.validate(document, SCHEMA)
    assert document["routes"] == [
        {"route": "hyper_connection", "m": 4, "hits": 120},
        {"route": "hyper_connection", "m": 16, "hits": 3},
        {"route": "hyper_connection.sharded", "m": 8, "hits": 2},
        {"route": "qsa_expand.rejected", "m": 0, "hits": 1},
    ]
    assert document["fallbacks"] == [
        {"route": "hyper_connection", "reason": "m", "m": 1, "hits": 30},
        {"route": "hyper_connection", "reason": "prefill", "m": 24, "hits": 1},
        {"route": "hyper_connection", "reason": "prefill", "m": 65, "hits": 7},
        {"route": "moe_grouped", "reason": "shape", "m": 4, "hits": 5},
    ]


def test_counts_of_several_devices_are_added() -> None:
    counts = {"cuda:0": {"gdn_split.hit": {"4": 1}}, "cuda:1": {"gdn_split.hit": {"4": 2}}}
    assert record(FACTS, counts)["routes"] == [{"route": "gdn_split", "m": 4, "hits": 3}]


@pytest.mark.parametrize("name", ["gdn_split", "gdn_split.hits", "gdn_split.fallback.mood"])
def test_an_unknown_counter_is_no_silent_route(name: str) -> None:
    with pytest.raises(ValueError, match="counter"):
        record(FACTS, {"cpu": {name: {"4": 1}}})


def test_every_counter_of_every_hook_has_a_place_in_the_format() -> None:
    for flag in FLAGS:
        hook = __import__(f"kernels_sm70.vllm_hooks.{flag.hook}", fromlist=["COUNTERS"])
        document = record(FACTS, {"cpu": {name: {"4": 1} for name in hook.COUNTERS}})
        jsonschema.validate(document, SCHEMA)
        assert document["routes"], hook.ROUTE
        assert {r["route"].removesuffix(".rejected") for r in document["routes"]} == {hook.ROUTE}


def test_the_file_is_replaced_only_when_counts_change(tmp_path: Path) -> None:
    counts: dict[str, dict[str, dict[str, int]]] = {}
    writer = Writer(tmp_path, FACTS, lambda: json.loads(json.dumps(counts)))
    writer.flush()
    first = writer.path.stat().st_mtime_ns
    writer.flush()
    assert writer.path.stat().st_mtime_ns == first
    counts["cpu"] = {"gdn_split.hit": {"4": 9}}
    writer.flush()
    document = json.loads(writer.path.read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["routes"] == [{"route": "gdn_split", "m": 4, "hits": 9}]
    assert [p.name for p in tmp_path.iterdir()] == [writer.path.name]


def test_a_folder_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    writer = Writer(blocked / "hits", FACTS, dict)
    with pytest.raises(OSError, match="file"):
        writer.start(lambda: None)


def test_the_last_counts_are_written_on_close(tmp_path: Path) -> None:
    counts: dict[str, dict[str, dict[str, int]]] = {"cpu": {}}
    writer = Writer(tmp_path, FACTS, lambda: json.loads(json.dumps(counts)))
    writer.start(lambda: None)
    counts["cpu"]["gdn_split.hit"] = {"2": 1}
    writer.close()
    assert json.loads(writer.path.read_text())["routes"] == [
        {"route": "gdn_split", "m": 2, "hits": 1}
    ]
