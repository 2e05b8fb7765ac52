"""The shipped NLL manifests: sizes promised in the documentation, data that can be made again."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from evalharness.data import PACKAGED
from evalharness.manifest import load_cases, load_manifest
from evalharness.nll.cases import tokens_of
from tools import make_nll_long_text

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
VOCABULARY = 49_152
CONTEXT = 8_192


def test_the_demos_cases_are_sixty_and_short() -> None:
    manifest = load_manifest(MANIFESTS / "nll-demo.json")
    cases = load_cases(manifest)["nll"]
    assert len(cases) == 60 and manifest.entries["nll"].sampling.max_tokens == 16
    kinds = [case.case_id.partition("-")[0] for case in cases]
    assert {kind: kinds.count(kind) for kind in kinds} == {"greedy": 18, "sampled": 18, "text": 24}
    for case in cases:
        tokens = tokens_of(case)
        assert max(*tokens.prompt, *tokens.continuation) < VOCABULARY


def test_long_cases_are_past_eight_thousand_tokens_and_fit() -> None:
    manifest = load_manifest(MANIFESTS / "nll-long.json")
    for case in load_cases(manifest)["nll"]:
        tokens = tokens_of(case)
        assert len(tokens.prompt) >= 8_000
        assert len(tokens.prompt) + len(tokens.continuation) < CONTEXT
        assert case.cluster_id == "nll-long-text"  # windows of one document are one cluster


def test_the_long_text_can_be_made_again() -> None:
    made = io.StringIO()
    with contextlib.redirect_stdout(made):
        assert make_nll_long_text.main() == 0
    assert made.getvalue() == (PACKAGED / "nll_long_text.txt").read_text(encoding="utf-8")
