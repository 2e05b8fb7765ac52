"""Recipes become manifests: cases chosen by rule, digests computed, oversized cases reported."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from evalharness.data import KNOWN, Source, rows
from evalharness.errors import ManifestError
from evalharness.manifest import Entry, Manifest, parse_manifest
from evalharness.registry import suite_named
from evalharness.suite import Suite
from evalharness.types import Case, RequestContext, sha256_hex

FORMAT_FILE = Path(__file__).parent / "formats" / "recipe.schema.json"
CountTokens = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True, slots=True)
class Oversized:
    """A case whose prompt and answer together exceed the model's context."""

    entry: str
    case_id: str
    prompt_tokens: int
    max_tokens: int
    context_tokens: int

    def __str__(self) -> str:
        return (
            f"{self.entry}: case {self.case_id} cannot fit: {self.prompt_tokens} prompt tokens + "
            f"{self.max_tokens} max_tokens > {self.context_tokens}"
        )


def build_manifest(recipe_path: Path) -> Manifest:
    """Return the manifest of a recipe; the same data always gives the same bytes.

    Raises ManifestError on a bad recipe, absent data, or a selection that finds too few cases.
    """
    recipe = _read_recipe(recipe_path)
    entries = {
        name: _entry(name, body, place=str(recipe_path)) for name, body in recipe["suites"].items()
    }
    text = manifest_text(recipe["name"], entries)
    return parse_manifest(text, f"manifest of {recipe_path}")


def manifest_text(name: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a manifest's text: one case a line, so that a changed case is one changed line."""
    marks: dict[str, str] = {}
    suites: dict[str, Any] = {}
    for entry, body in entries.items():
        mark = f"@cases of {entry}@"
        lines = ",\n".join(f"    {json.dumps(case)}" for case in body["cases"])
        marks[json.dumps(mark)] = f"[\n{lines}\n   ]"
        suites[entry] = {**body, "cases": mark}
    document = {"format": "evalharness/manifest/1", "name": name, "suites": suites}
    text = json.dumps(document, indent=1, ensure_ascii=True)
    for mark, lines in marks.items():
        text = text.replace(mark, lines)
    return text + "\n"


def _read_recipe(path: Path) -> Mapping[str, Any]:
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: cannot be read as a recipe ({error})") from error
    checker = jsonschema.Draft202012Validator(json.loads(FORMAT_FILE.read_text(encoding="utf-8")))
    fault = jsonschema.exceptions.best_match(checker.iter_errors(recipe))
    if fault is not None:
        where = "/".join(str(part) for part in fault.absolute_path) or "top level"
        raise ManifestError(f"{path}: {where}: {fault.message[:300]}; see {FORMAT_FILE.name}")
    found: Mapping[str, Any] = recipe
    return found


def _entry(name: str, body: Mapping[str, Any], *, place: str) -> dict[str, Any]:
    suite = suite_named(body.get("suite", name))
    source = _source(body["source"], place=f"{place}: {name}/source")
    cases: dict[str, Case] = {}
    for selection in body["select"]:
        for case in _selected(suite, source, selection, place=f"{place}: {name}/select"):
            cases.setdefault(case.case_id, case)
    kept = {key: value for key, value in body.items() if key not in ("select", "source")}
    return {
        "source": source.as_json(),
        **kept,
        "cases": [{"id": case.case_id, "sha256": case.digest} for case in cases.values()],
    }


def _source(stated: str | Mapping[str, str], *, place: str) -> Source:
    if isinstance(stated, str):
        if stated not in KNOWN:
            raise ManifestError(
                f"{place}: {stated!r} is unknown; expected {', '.join(KNOWN)}, or a mapping "
                "such as {kind: packaged, id: NAME, revision: '1'} (data_files/NAME.jsonl)"
            )
        return KNOWN[stated]
    try:
        return Source(**stated)  # type: ignore[arg-type]  # kind is checked with the manifest
    except TypeError as error:
        raise ManifestError(f"{place}: {error}") from error


def _selected(
    suite: Suite, source: Source, selection: Mapping[str, Any], *, place: str
) -> Iterator[Case]:
    found = rows(source)
    wanted = selection.get("ids", list(found))
    if absent := [row_id for row_id in wanted if row_id not in found]:
        raise ManifestError(f"{place}: not in {source.label}: {', '.join(absent[:5])}")
    if "group" in selection:
        wanted = [row_id for row_id in wanted if row_id.rpartition("_")[0] == selection["group"]]
    cases = [suite.to_case(row_id, found[row_id]) for row_id in wanted]
    limit = selection.get("max_prompt_bytes")
    if limit is not None:
        cases = [case for case in cases if len(case.prompt) <= limit]
    take = selection.get("take", len(cases))
    if not cases or take > len(cases):
        raise ManifestError(
            f"{place}: {take or 'some'} cases wanted of {source.label}, {len(cases)} there"
        )
    if selection.get("order", "source") == "spread":
        chosen = {case.case_id for case in sorted(cases, key=_spread)[:take]}
        return iter([case for case in cases if case.case_id in chosen])
    return iter(cases[:take])


def _spread(case: Case) -> str:
    return sha256_hex(case.case_id)


def oversized(
    manifest: Manifest,
    cases: Mapping[str, Sequence[Case]],
    *,
    count_tokens: CountTokens,
    context_tokens: int,
) -> Iterator[Oversized]:
    """Yield the cases whose request cannot fit; `count_tokens` takes a request body."""
    for entry in manifest.entries.values():
        for case in cases[entry.name]:
            tokens = max(count_tokens(body) for body in _bodies(entry, case))
            if tokens + entry.sampling.max_tokens > context_tokens:
                yield Oversized(
                    entry.name, case.case_id, tokens, entry.sampling.max_tokens, context_tokens
                )


def _bodies(entry: Entry, case: Case) -> Iterator[Mapping[str, Any]]:
    suite = suite_named(entry.suite)
    for mode in entry.modes:
        context = RequestContext("model", mode, entry.sampling, 0, 0, entry.template)
        yield json.loads(suite.request(case, context).body_json)


def token_counter(model: Path) -> CountTokens:
    """Return a counter that uses the model's own tokenizer and chat template.

    Raises ManifestError where transformers or the tokenizer cannot be loaded.
    """
    try:
        transformers = importlib.import_module("transformers")
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    except (ImportError, OSError, ValueError) as error:
        raise ManifestError(
            f"--model {model}: no tokenizer ({error}); give a model folder, and install the "
            "extra [cpu] or [gpu], which bring transformers"
        ) from error

    def count(body: Mapping[str, Any]) -> int:
        if "messages" not in body:
            prompt = body["prompt"]
            return len(prompt if isinstance(prompt, list) else tokenizer.encode(prompt))
        ids = tokenizer.apply_chat_template(
            body["messages"],
            tools=body.get("tools"),
            add_generation_prompt=True,
            return_dict=False,
        )
        return len(ids)

    return count
