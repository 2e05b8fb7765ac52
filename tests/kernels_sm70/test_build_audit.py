# SPDX-License-Identifier: Apache-2.0
"""Builds and the audit without a GPU: every kernel for sm_70 and sm_90, against the ledger."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernels_sm70 import audit
from kernels_sm70.build import build, source_digest, source_files
from kernels_sm70.contract import PACKAGE_ROOT
from kernels_sm70.cubin import CubinError, KernelImage, read_cubin
from kernels_sm70.hyper_connection import SPECS
from kernels_sm70.nvrtc import BuildError, compile_cubin, find_compiler
from kernels_sm70.registry import OPERATIONS, all_kernels, kernels_of

PROBE = """
extern "C" __global__ void probe(const float* x, float* y, int n) {
  float v[64];
  for (int i = 0; i < n; ++i) v[(i * n) & 63] = x[i];
  for (int i = 0; i < n; ++i) y[i] = v[(i * i) & 63];
}
"""


@pytest.fixture(scope="module")
def audited() -> tuple[dict[str, dict[str, object]], list[str]]:
    return audit.audit()


def test_every_kernel_compiles_keeps_the_rules_and_matches_the_ledger(
    audited: tuple[dict[str, dict[str, object]], list[str]],
) -> None:
    ledger, problems = audited
    assert problems == []
    assert audit.differences(ledger, json.loads(audit.LEDGER.read_text())) == []


def test_every_declared_kernel_is_in_the_ledger() -> None:
    ledger = json.loads(audit.LEDGER.read_text())
    for spec in all_kernels():
        for arch in spec.arches:
            facts = ledger[arch][spec.entry]
            assert facts["floor_bytes"], spec.entry
            assert (facts["hmma"] > 0) == spec.matrix, spec.entry


def test_a_changed_kernel_differs_from_the_ledger(
    audited: tuple[dict[str, dict[str, object]], list[str]],
) -> None:
    changed = copy.deepcopy(audited[0])
    changed["sm_70"]["ks_gdn_split"]["registers"] = 17  # type: ignore[index]
    del changed["sm_90"]["ks_gdn_split"]
    assert len(audit.differences(changed, audited[0])) == 2
    assert audit.differences(audited[0], audited[0]) == []


def _image(**changes: int) -> KernelImage:
    image = read_cubin(build("hyper_connection", "sm_70").cubin)["ks_hc_down_fp16_t1"]
    return dataclasses.replace(image, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"registers": 256}, "256 registers"),
        ({"frame_bytes": 8}, "8 B of stack"),
        ({"local_loads": 1}, "1 local loads"),
        ({"local_stores": 2}, "2 local stores"),
        ({"hmma": 0}, "no matrix instruction"),
        ({"static_shared_bytes": 97 * 1024}, "shared memory"),
    ],
)
def test_each_rule_bites(changes: dict[str, int], words: str) -> None:
    spec = SPECS["ks_hc_down_fp16_t1"]
    assert audit.broken_rules(_image(), spec, "sm_70") == []
    assert any(words in line for line in audit.broken_rules(_image(**changes), spec, "sm_70"))


def test_the_reader_sees_local_memory() -> None:
    """A register array indexed at run time goes to local memory: loads, stores and a frame."""
    compiler = find_compiler("sm_70")
    options = ("--gpu-architecture=sm_70",)
    cubin, _ = compile_cubin(compiler, PROBE, name="probe.cu", options=options)
    image = read_cubin(cubin)["probe"]
    assert image.local_loads >= 1
    assert image.local_stores >= 1
    assert image.frame_bytes >= 256


def test_the_reader_agrees_with_the_assembler(tmp_path: Path) -> None:
    """Registers and shared memory as ptxas -v reports them, for every hyper-connection kernel."""
    import nvidia.cuda_nvcc

    ptxas = Path(nvidia.cuda_nvcc.__path__[0]) / "bin" / "ptxas"
    compiler = find_compiler("sm_70")
    path = PACKAGE_ROOT / "hyper_connection" / "kernel.cuh"
    ptx = tmp_path / "hc.ptx"
    ptx.write_bytes(_ptx(compiler, path))
    command = [str(ptxas), "-v", "-arch=sm_70", str(ptx), "-o", str(tmp_path / "hc.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reported = re.findall(
        r"Compiling entry function '(\w+)'.*?Used (\d+) registers", done.stderr, re.DOTALL
    )
    images = read_cubin((tmp_path / "hc.cubin").read_bytes())
    assert {name: int(n) for name, n in reported} == {
        name: image.registers for name, image in images.items()
    }
    assert len(reported) == 7


def _ptx(compiler: object, path: Path) -> bytes:
    """PTX of a source: the same compile to a virtual architecture."""
    import ctypes

    lib = compiler.handle  # type: ignore[attr-defined]
    program = ctypes.c_void_p()
    text = path.read_text().encode()
    lib.nvrtcCreateProgram(ctypes.byref(program), text, b"hc", 0, None, None)
    options = [b"--std=c++17", b"--gpu-architecture=compute_70", f"-I{path.parent}".encode()]
    assert lib.nvrtcCompileProgram(program, 3, (ctypes.c_char_p * 3)(*options)) == 0
    size = ctypes.c_size_t()
    lib.nvrtcGetPTXSize(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetPTX(program, buffer)
    return buffer.raw.rstrip(b"\0")


def test_a_damaged_cubin_is_refused() -> None:
    with pytest.raises(CubinError, match="not a 64-bit"):
        read_cubin(b"not an ELF")


def test_compile_errors_carry_the_log() -> None:
    compiler = find_compiler("sm_70")
    with pytest.raises(BuildError, match="undefined_name"):
        compile_cubin(
            compiler,
            "__global__ void f() { undefined_name; }",
            name="bad.cu",
            options=("--gpu-architecture=sm_70",),
        )


def test_an_unknown_architecture_names_what_is_there() -> None:
    with pytest.raises(BuildError, match="no NVRTC for sm_1"):
        find_compiler("sm_1")


def test_volta_refuses_what_it_lacks() -> None:
    """bf16 matrix products must not compile for sm_70: a build cannot pretend."""
    source = '#include "../common/mma.cuh"\nextern "C" __global__ void f(uint4* p) {'
    source += " ks::Accumulator a; ks::clear(a); ks::multiply<ks::Bf16>(a, p[0], p[1], p[2]); }"
    folder = f"--include-path={PACKAGE_ROOT / 'gdn_split'}"
    with pytest.raises(BuildError, match="bf16"):
        compile_cubin(
            find_compiler("sm_70"),
            source,
            name="f.cu",
            options=("--std=c++17", "--gpu-architecture=sm_70", folder),
        )


def test_cache_is_keyed_by_source_and_checked(tmp_path: Path) -> None:
    first = build("gdn_split", "sm_70", cache=tmp_path)
    assert build("gdn_split", "sm_70", cache=tmp_path) == first
    (cubin,) = tmp_path.glob("*.cubin")
    cubin.write_bytes(cubin.read_bytes()[:-1] + b"\xff")
    again = build("gdn_split", "sm_70", cache=tmp_path)
    assert again.stamp.cubin_digest == first.stamp.cubin_digest
    assert source_digest("gdn_split") != source_digest("gdn_split", ("KS_FORCE_VOLTA_ATOM",))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_device_sources_are_torch_and_toolkit_free(operation: str) -> None:
    """Only our own headers: no <...> include, no torch, so that NVRTC needs no include path."""
    for path in source_files(operation):
        lines = [line for line in path.read_text().splitlines() if "#include" in line]
        assert all("<" not in line and "torch" not in line for line in lines), path
    assert "Contract" in (
        __import__(f"kernels_sm70.{operation}", fromlist=["x"]).__doc__ or ""
    ) or ("inputs" in (__import__(f"kernels_sm70.{operation}", fromlist=["x"]).__doc__ or ""))


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_sources_build_with_nvcc(operation: str, tmp_path: Path) -> None:
    """Owners of a toolkit compile the same file; here with whichever nvcc is on PATH, for sm_90."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH; NVRTC builds are covered by the audit")
    target = tmp_path / "kernel.cubin"
    source = PACKAGE_ROOT / operation / "kernel.cuh"
    command = [nvcc, "-std=c++17", "-O3", "-arch=sm_90", "-cubin", "-x", "cu", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True, capture_output=True)
    wanted = {spec.entry for spec in kernels_of(operation) if "sm_90" in spec.arches}
    assert wanted == set(read_cubin(target.read_bytes()))
