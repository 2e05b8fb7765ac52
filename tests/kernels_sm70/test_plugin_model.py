"""The tiny model's script: transformers' names and shapes, the same bytes, one faulty tensor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "transformers", "safetensors"):
    pytest.importorskip(needed, reason=f"{needed} is not installed in this environment")

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "tiny_qwen4exp"
sys.path.insert(0, str(FOLDER))
import make_model  # noqa: E402
import nll_rows  # noqa: E402
from shapes import model_tensors  # noqa: E402

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 3,
    "hc_lowrank": 16,
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's smallest size, smaller still: these tests are about names and bytes."""
    monkeypatch.setitem(make_model.SIZES, "small", make_model.SIZES["small"] | TINY)


def build(out: Path, **changes: Any) -> dict[str, torch.Tensor]:
    make_model.build(out, **({"size": "small", "seed": 7, "faults": {}} | changes))
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(out.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


@pytest.mark.parametrize("size", ["small", "rank", "pair"])
def test_names_and_shapes_are_those_of_transformers(size: str, tmp_path: Path) -> None:
    from transformers import Qwen4ExpTextConfig
    from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

    settings = make_model.BASE | make_model.SIZES[size]
    settings |= {"vocab_size": 512, "eos_token_id": 2, "num_experts": 16}
    with torch.device("meta"):
        model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**settings))
    want = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    ours = {spec.name: spec.shape for _, specs in model_tensors(settings) for spec in specs}
    assert ours == want


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two")
    other = build(tmp_path / "other", seed=8)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_a_fault_scales_one_tensor_and_nothing_else(tmp_path: Path) -> None:
    good = build(tmp_path / "good")
    name = make_model.FAULT_TENSOR
    bad = build(tmp_path / "bad", faults={name: 1.01}, like=tmp_path / "good")
    assert [key for key in good if not torch.equal(good[key], bad[key])] == [name]
    ratio = bad[name].double().abs().sum() / good[name].double().abs().sum()
    assert abs(float(ratio) - 1.01) < 1e-3
    shared = "model-layer1.safetensors"
    assert (tmp_path / "good" / shared).samefile(tmp_path / "bad" / shared)


def test_an_unknown_fault_or_another_seed_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "good")
    with pytest.raises(SystemExit, match="no tensor named nope"):
        build(tmp_path / "bad", faults={"nope": 1.01})
    with pytest.raises(SystemExit, match="made with"):
        build(tmp_path / "bad", seed=9, like=tmp_path / "good")


def test_the_tokenizer_keeps_every_text(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    build(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    text = 'Zoë’s 🦆 lay {"eggs": 16}\n\t…'
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    tools = [{"type": "function", "function": {"name": "lay_eggs"}}]
    messages = [{"role": "user", "content": "How many?"}]
    asked = tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=True
    )
    assert "lay_eggs" in asked and asked.endswith("<|im_start|>assistant\n")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert tokenizer.convert_ids_to_tokens(config["eos_token_id"]) == "<|im_end|>"


def test_fixed_continuations_are_the_manifests(tmp_path: Path, monkeypatch: Any) -> None:
    """The committed manifest pins the cases' digests: the script must make those very rows."""
    from evalharness.nll.cases import to_case

    monkeypatch.setattr(sys, "argv", ["nll_rows.py", "--out", str(tmp_path)])
    assert nll_rows.main() == 0
    manifests = FOLDER.parents[1] / "manifests"
    pinned = {
        **json.loads((manifests / "sm70.json").read_text())["suites"],
        **json.loads((manifests / "sm70-checks.json").read_text())["suites"],
    }
    for name in (*nll_rows.SHAPES, "shared"):
        lines = (tmp_path / "tiny_qwen4exp" / f"{name}.jsonl").read_text().splitlines()
        made = [to_case(row["id"], row) for row in map(json.loads, lines)]
        cases = [{"id": c.case_id, "sha256": c.digest} for c in made]
        assert cases == pinned[f"nll-{name}"]["cases"]
