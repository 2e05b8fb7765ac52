"""Sums worked out by hand, identities that hold for any trace, and damage that is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.errors import IncompleteError, ManifestError, StoreError
from evalharness.trace.attribution import attribute, busy_and_gaps
from evalharness.trace.chrome import Activity, read_trace
from evalharness.trace.command import read_files
from evalharness.trace.document import markdown
from evalharness.trace.families import UNKNOWN, default_families, read_families
from tests.trace.build import decode_step, kernel, operator, step, write

FORMATS = Path(__file__).parents[2] / "evalharness" / "formats"


def test_a_decode_step_by_hand(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json.gz",
        decode_step(),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
        vllm_version="0.32.0",
    )
    trace = read_trace(path)
    assert (trace.kind, trace.vllm_version, len(trace.steps)) == ("cuda", "0.32.0", 1)
    (device,) = attribute(trace, default_families())
    assert device.device_name == "NVIDIA H200"
    assert (device.kernels_ns, device.busy_ns, device.overlap_ns) == (24_000, 21_000, 3_000)
    assert (device.envelope_ns, device.gap_ns, device.gaps) == (26_000, 5_000, 1)
    assert (device.lanes, device.activities, device.in_graph_ns) == (2, 5, 10_000)
    gap = device.largest_gaps[0]
    assert (gap.length_ns, gap.after, gap.before) == (
        5_000, "Memcpy DtoH (Device -> Pinned)", "a_kernel_nobody_knows<4>",
    )  # fmt: skip
    assert {one.name: one.time_ns for one in device.families} == {
        "gemm": 10_000, UNKNOWN: 5_000, "our kernels": 4_000, "copy": 4_000, "memset": 1_000,
    }  # fmt: skip
    assert [one.name for one in device.unknown] == ["a_kernel_nobody_knows<4>"]


def test_operators_of_a_cpu_count_their_own_time(tmp_path: Path) -> None:
    # linear 0-10 calls addmm 2-8, which calls copy 3-4; a second thread runs 5-7.
    events = [
        operator("aten::copy_", 3, 1),
        operator("aten::linear", 0, 10),
        operator("aten::addmm", 2, 6),
        operator("aten::silu", 12, 2),
        operator("aten::silu", 5, 2, thread=2),
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert trace.kind == "cpu"
    (device,) = attribute(trace, default_families())
    assert {one.name: (one.calls, one.time_ns) for one in device.kernels} == {
        "aten::linear": (1, 4_000),
        "aten::addmm": (1, 5_000),
        "aten::copy_": (1, 1_000),
        "aten::silu": (2, 4_000),
    }
    assert (device.kernels_ns, device.busy_ns, device.envelope_ns) == (14_000, 12_000, 14_000)
    assert (device.overlap_ns, device.gap_ns, device.lanes) == (2_000, 2_000, 2)


def test_a_callee_that_rounding_lets_end_late_is_cut(tmp_path: Path) -> None:
    events = [operator("aten::linear", 0, 10), operator("aten::addmm", 4, 6.002)]
    (device,) = attribute(read_trace(write(tmp_path / "t.json", events)), default_families())
    assert device.kernels_ns == device.busy_ns == 10_000


def test_devices_are_apart(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 4), kernel("gemm", 100, 4, device=1)]
    found = attribute(read_trace(write(tmp_path / "t.json", events)), default_families())
    assert [(one.device, one.envelope_ns, one.gaps) for one in found] == [
        ("0", 4_000, 0),
        ("1", 4_000, 0),
    ]


SPAN = st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 2))


@settings(max_examples=300, deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=25))
def test_union_and_gaps_equal_counting_every_nanosecond(spans: list[tuple[int, int, int]]) -> None:
    made = [
        Activity(f"k{i}", ("0", str(lane)), begin, begin + length, length)
        for i, (begin, length, lane) in enumerate(spans)
    ]
    covered = {ns for one in made for ns in range(one.begin_ns, one.end_ns)}
    first, last = min(one.begin_ns for one in made), max(one.end_ns for one in made)
    busy, gaps = busy_and_gaps(made)
    assert busy == len(covered)
    assert busy + sum(gap.length_ns for gap in gaps) == last - first
    assert all(gap.length_ns > 0 for gap in gaps)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ks_hc_combine_norm_fp16", "our kernels"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", "communication"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>(x)", "attention"),
        ("vllm::unified_attention_with_output", "attention"),
        ("kernel_unified_attention_2d", "attention"),
        ("void vllm::reshape_and_cache_flash_kernel<__half>(x)", "kv cache"),
        ("vllm::unified_kv_cache_update", "kv cache"),
        ("fused_moe_kernel", "moe"),
        ("void vllm::moe::topkGatingSoftmax<8, 512>(float const*)", "moe"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "gemm"),
        ("void gemv2T_kernel_val<int, int, __half>(x)", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm>(x)", "gemm"),
        ("aten::addmm", "gemm"),
        ("void vllm::rms_norm_kernel<c10::Half>(x)", "norm"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norm"),
        ("void vllm::rotary_embedding_kernel<c10::Half, true>(x)", "rotary embedding"),
        ("void vllm::act_and_mul_kernel<c10::Half>(x)", "activation"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(x)", "sampling"),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2>(x)", "sampling"),
        ("triton_poi_fused_add_mul_1", "fused (compiler)"),
        ("void at::native::vectorized_gather_kernel<16, long>(x)", "index"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>(x)", "copy"),
        ("Memset (Device)", "memset"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>(x)", "elementwise"),
        ("aten::as_strided", "host bookkeeping"),
        ("mystery_kernel", UNKNOWN),
    ],
)  # fmt: skip
def test_known_names_have_their_families(name: str, family: str) -> None:
    assert default_families().of(name) == family


def test_documents_agree_with_their_schemas(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json.gz", decode_step())
    document = read_files([path], tmp_path / "out", concurrency=16)
    schema = json.loads((FORMATS / "trace.schema.json").read_text())
    jsonschema.validate(document, schema)
    example = json.loads((FORMATS / "examples/trace.json").read_text())
    jsonschema.validate(example, schema)
    (device,) = example["devices"]
    assert device["kernels_ns"] - device["overlap_ns"] + device["gap_ns"] == device["envelope_ns"]
    assert sum(row["time_ns"] for row in device["families"]) == device["kernels_ns"]
    assert sum(row["time_ns"] for row in device["kernels"]) == device["kernels_ns"]
    families = json.loads((FORMATS / "trace_families.schema.json").read_text())
    jsonschema.validate(
        json.loads((FORMATS / "examples/trace_families.json").read_text()), families
    )
    assert json.loads((tmp_path / "out/trace.json").read_text()) == document


def test_the_table_shows_every_family_and_every_unknown_kernel(tmp_path: Path) -> None:
    events = [*decode_step(), kernel("odd|name`\x1b[31m", 30, 1)]
    document = read_files([write(tmp_path / "t.json", events)], tmp_path, concurrency=16)
    text = markdown(document)
    assert "| gemm | 0.010 | 40.0% | 10.0 | 1 |" in text
    assert "| our kernels | 0.004 | 16.0% | 4.0 | 1 |" in text
    assert "- `a_kernel_nobody_knows<4>`" in text
    assert "odd\\|name'" in text and "\x1b" not in text
    assert "overlap 0.003 ms" in text and "2 gaps of 0.009 ms" in text
    assert "nothing else (annotations): 1 steps with 0 in prefill, 16 in decode." in text


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "no list traceEvents"),
        (b'{"traceEvents": {}}', "no list traceEvents"),
        (b'{"traceEvents": []}', "neither kernels nor operators"),
        (gzip.compress(b'{"traceEvents": []}')[:-6], "cannot be read"),
        (json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k"}]}).encode(), "ts"),
        (json.dumps({"traceEvents": [kernel("k", 0, -1)]}).encode(), "duration -1"),
        (json.dumps({"traceEvents": [{**kernel("k", 0, 1), "args": {}}]}).encode(), "device"),
        (json.dumps({"traceEvents": [{**kernel("k", 0, 1), "ts": "x"}]}).encode(), "malformed"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=said) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read_trace(tmp_path / "absent.json")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(raw)
    with pytest.raises(StoreError):
        read_trace(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["name", "ts", "dur", "args", "cat", "ph", "pid"]), VALUES)
def test_no_value_of_an_event_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "event.json"
    events = [kernel("k", 0, 1), {**kernel("gemm", 3, 2), key: value}, {**step(), key: value}]
    path.write_text(json.dumps({"traceEvents": events}))
    try:
        (device, *_) = attribute(read_trace(path), default_families())
    except StoreError:
        return
    assert device.kernels_ns - device.overlap_ns + device.gap_ns == device.envelope_ns


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"format": "x", "families": []}, "format"),
        ({"format": "evalharness/trace_families/1", "families": [{"family": "a"}]}, "patterns"),
        (
            {
                "format": "evalharness/trace_families/1",
                "families": [{"family": "a", "patterns": ["("]}],
            },
            "no regular expression",
        ),
        (
            {
                "format": "evalharness/trace_families/1",
                "families": [{"family": "unknown", "patterns": ["a"]}],
            },
            "reserved",
        ),
    ],
)
def test_a_wrong_families_file_is_named(
    tmp_path: Path, document: dict[str, object], said: str
) -> None:
    path = tmp_path / "families.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ManifestError, match=said):
        read_families(path)


def test_another_list_of_families_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", decode_step())
    families = tmp_path / "mine.json"
    rows = [{"family": "mystery", "patterns": ["nobody"]}]
    families.write_text(json.dumps({"format": "evalharness/trace_families/1", "families": rows}))
    document = read_files([path], tmp_path, families=families, concurrency=16)
    found = {row["family"]: row["time_ns"] for row in document["devices"][0]["families"]}
    assert found == {"mystery": 5_000, UNKNOWN: 19_000}
    assert document["families"]["name"] == "mine.json"


def test_prefill_is_refused_and_kept_to_look_at(tmp_path: Path) -> None:
    events = [*decode_step(), step("execute_context_1(37)_generation_15(15)", 40)]
    path = write(tmp_path / "t.json", events)
    with pytest.raises(
        IncompleteError, match=r"1 of 2 steps had prefill in them .37 prompt tokens"
    ):
        read_files([path], tmp_path / "out")
    document = json.loads((tmp_path / "out/trace.json").read_text())
    assert document["purity"]["pure"] is False
    assert "**Refused**" in (tmp_path / "out/trace.md").read_text()


def test_a_trace_without_annotations_shows_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", decode_step()[2:])
    with pytest.raises(IncompleteError, match="--unproven"):
        read_files([path], tmp_path / "out")
    document = read_files([path], tmp_path / "out", unproven=True)
    assert document["purity"]["pure"] is None
    assert "Not shown to be pure decode" in markdown(document)
