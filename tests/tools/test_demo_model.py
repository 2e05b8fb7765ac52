"""The demo's model: digests refuse what changed, the adapter's product is added exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.demo_model.digests import (
    ModelError,
    file_sha256,
    matches_record,
    require_digest,
    tensors_sha256,
    write_record,
)
from tools.demo_model.lora import CONFIG, RECORD, WEIGHTS, merge_adapter, read_adapter_record
from tools.demo_model.make_model import make_model

torch = pytest.importorskip("torch", reason="torch is not installed; see requirements/install.py")
BASE = "b" * 64
TARGET = "model.layers.0.self_attn.q_proj"


def adapter(folder: Path, config: dict[str, object] | None = None, *, rank: int = 2) -> Path:
    """A small adapter on one weight, with its record."""
    from safetensors.torch import save_file

    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(rank, 6, generator=generator).half()
    b = torch.randn(4, rank, generator=generator).half()
    prefix = f"base_model.model.{TARGET}"
    tensors = {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    save_file(tensors, str(folder / WEIGHTS))
    (folder / CONFIG).write_text(json.dumps({"r": rank, "lora_alpha": 8} | (config or {})))
    files = {name: file_sha256(folder / name) for name in (WEIGHTS, CONFIG)}
    (folder / RECORD).write_text(json.dumps({"base_tensors_sha256": BASE, "files": files}))
    return folder


def test_the_product_is_added_in_float32_and_rounded_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    where = adapter(tmp_path / "a")
    weight = torch.linspace(-1, 1, 24).reshape(4, 6).bfloat16()
    state = {f"{TARGET}.weight": weight.clone(), "other.weight": torch.ones(2)}
    assert merge_adapter(state, where) == 1
    made = load_file(str(where / WEIGHTS))
    a, b = (made[f"base_model.model.{TARGET}.lora_{side}.weight"].float() for side in "AB")
    expected = (weight.float() + 4.0 * (b @ a)).bfloat16()
    assert torch.equal(state[f"{TARGET}.weight"], expected)
    assert not torch.equal(expected, weight) and torch.equal(state["other.weight"], torch.ones(2))


def test_a_changed_or_missing_part_or_another_base_is_refused(tmp_path: Path) -> None:
    where = adapter(tmp_path / "a")
    assert read_adapter_record(where, base_tensors_sha256=BASE)["base_tensors_sha256"] == BASE
    with pytest.raises(ModelError, match="trained on base"):
        read_adapter_record(where, base_tensors_sha256="c" * 64)
    (where / WEIGHTS).write_bytes((where / WEIGHTS).read_bytes() + b"\0")
    with pytest.raises(ModelError, match="expected SHA-256"):
        read_adapter_record(where, base_tensors_sha256=BASE)
    (where / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="missing"):
        read_adapter_record(where, base_tensors_sha256=BASE)
    with pytest.raises(ModelError, match="missing"):
        read_adapter_record(tmp_path / "nowhere", base_tensors_sha256=BASE)
    # The whole tool stops there too: before any download, without leaving an output.
    out = tmp_path / "model"
    with pytest.raises(ModelError):
        make_model(out, cache=tmp_path / "cache", adapter=where)
    assert not out.exists() and not (tmp_path / "cache").exists()


def test_an_adapter_that_is_more_than_low_rank_is_refused(tmp_path: Path) -> None:
    odds: list[dict[str, object]] = [{"use_dora": True}, {"use_rslora": True}, {"bias": "all"}]
    for number, odd in enumerate(odds):
        with pytest.raises(ModelError, match="plain LoRA"):
            merge_adapter({}, adapter(tmp_path / str(number), odd))
    with pytest.raises(ModelError, match="no weight"):
        merge_adapter({}, adapter(tmp_path / "x"))


def test_an_output_that_is_not_ours_is_never_deleted(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious.txt").write_text("keep")
    with pytest.raises(ModelError, match="move it away"):
        make_model(mine, cache=tmp_path / "cache", adapter=None)
    assert (mine / "precious.txt").read_text() == "keep"


def test_the_record_notices_every_change(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one")
    write_record(tmp_path, {"recipe": 1})
    assert matches_record(tmp_path, {"recipe": 1})
    assert not matches_record(tmp_path, {"recipe": 2})
    (tmp_path / "f").write_text("two")
    assert not matches_record(tmp_path, {"recipe": 1})
    (tmp_path / "f").unlink()
    assert not matches_record(tmp_path, {"recipe": 1})
    with pytest.raises(ModelError, match="missing"):
        require_digest(tmp_path / "f", BASE, remedy="restore it")


def test_the_tensors_digest_sees_values_and_not_the_header(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {"a": torch.arange(4.0), "b": torch.ones(2, 2).half()}
    save_file(tensors, str(tmp_path / "1"))
    save_file(tensors, str(tmp_path / "2"), metadata={"writer": "another"})
    save_file(tensors | {"a": torch.arange(4.0) + 1e-6}, str(tmp_path / "3"))
    digests = [tensors_sha256(tmp_path / str(number)) for number in (1, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
