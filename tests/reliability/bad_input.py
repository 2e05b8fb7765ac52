"""Fuzz of everything a user or a server hands in: an error of ours or a value, never a traceback.

Inputs are seeded mutations of sound files (bytes flipped, cut, repeated, spliced with hostile
pieces; JSON values replaced or removed) and pure noise, so the same seed gives the same inputs.
An error must name its place and be more than a word. Anything but an error of ours counts as wrong.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evalharness.arms import parse_arms
from evalharness.errors import HarnessError
from evalharness.manifest import parse_manifest
from evalharness.registry import suite_named
from evalharness.reply import Reply, read_reply, read_stream
from evalharness.sse import EventClock, events
from evalharness.store import decode_line
from evalharness.vectors import verdict_line
from tests.reliability.chaos_server import BODY
from tests.reliability.tally import Tally
from tests.report.plant import Plant, plant_run

ROOT = Path(__file__).parents[2]
HOSTILE: tuple[bytes, ...] = (
    b"\x00", b"\xff\xfe", b"\x1b[31m", b"\xe2\x80\xae", b"\\ud800", b"9" * 400, b"-", b"1e999",
    b"NaN", b"null", b"[" * 300, b"{" * 300, b"../../x", b"&a [*a]", b"!!python/object:os.system",
    b"<<: *a", b"\xc2\x85", b"\r\n\r\n", b"data: ", b'"', b"'", b": ", b"- ", b"\t", b"%s{0}",
    b"${HOME}", b"\n---\n", b"? ", b"|\n", b">\n", b"true", b"0x1F", b"2026-11-29",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, 1e308, "", "x", [], {}, [None], {"a": 1}, "\ud800", "\x1b[2J",
    "../../x", "a" * 5000, [[]] * 50, {"": {"": None}},
)  # fmt: skip


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """Return the bytes after one to four mutations."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at - 1] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 60)]
        elif kind == 3:
            data[at:at] = rng.choice(HOSTILE)
        else:
            data[at : at + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
    return bytes(data)


def reshaped(text: bytes, rng: random.Random) -> bytes:
    """Replace, remove or rename one value anywhere in a JSON text."""
    document = json.loads(text)
    spots = list(_spots(document))
    for _ in range(rng.randint(1, 2)):
        parent, key = rng.choice(spots)
        try:
            if rng.random() < 0.3:
                del parent[key]
            else:
                parent[key] = rng.choice(ODD)
        except (KeyError, IndexError):
            continue  # the first change took this spot away
    return json.dumps(document).encode()


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _spots(value[key])


def variants(raw: bytes, rng: random.Random, *, is_json: bool) -> bytes:
    """Return one input made of a sound one, or noise."""
    dice = rng.random()
    if dice < 0.05:
        return rng.randbytes(rng.randint(0, 200))
    if is_json and dice < 0.55:
        return reshaped(raw, rng)
    return mutated(raw, rng)


Feed = Callable[[bytes], None]


def feed_arms(data: bytes) -> None:
    """Read an arms file; what it accepts must stay inside a run directory."""
    for arm in parse_arms(data, "a.yaml").arms:
        assert Path("run/arms", arm.name).resolve().parent == Path("run/arms").resolve()
        assert arm.name.isprintable() and not arm.name.startswith(".")


def feed_manifest(data: bytes) -> None:
    """Read a manifest; names of entries become file names."""
    for name in parse_manifest(data.decode("utf-8", "replace"), "m.json").entries:
        assert Path("run/cases", f"{name}.jsonl").resolve().parent == Path("run/cases").resolve()


def feed_line(data: bytes) -> None:
    """Read a response line; a changed one must not be taken."""
    try:
        decode_line(data)
    except ValueError as error:
        assert str(error).split(":")[0] in ("torn", "altered", "not a response")
        return
    assert data in SOUND_LINES, "a damaged line was taken"


def feed_vector(data: bytes) -> None:
    """Score a vector row with every suite that has vectors."""
    for name in ("bfcl", "gsm8k"):
        suite = suite_named(name)
        assert suite.score_vector is not None
        verdict, text, _ = verdict_line(data, suite.score_vector, suite.default_scorer)
        assert verdict["outcome"] in ("correct", "wrong", "unobserved")
        assert json.loads(text)["outcome"] == verdict["outcome"]


def feed_stream(data: bytes) -> None:
    """Read a body as an event stream in pieces, and as a plain reply."""
    clock = EventClock()
    for at in range(0, len(data), 7):
        clock.feed(data[at : at + 7], at)
    text = data.decode("utf-8", "replace")
    if text.encode() == data:
        assert len(clock.times_ns) == len(events(text))
    for endpoint in ("/v1/chat/completions", "/v1/completions"):
        assert isinstance(read_stream(text, endpoint=endpoint, model="fake"), Reply)
        assert isinstance(read_reply(text, endpoint=endpoint, model="fake"), Reply)


SOUND_LINES: set[bytes] = set()


def _seeds(folder: Path) -> dict[str, tuple[list[bytes], Feed, bool]]:
    """Return, for each kind of input, sound examples, its reader, and whether it is JSON."""
    run = plant_run(folder / "seed", Plant(factors={"hc": ("off", "on")}, concurrency=(4,)))
    lines = [
        line for f in run.glob("responses/hc/*/*.jsonl") for line in f.read_bytes().split(b"\n")
    ]
    SOUND_LINES.update(lines[:-1])
    arms = [path.read_bytes() for path in sorted((ROOT / "manifests" / "arms").glob("*.yaml"))]
    manifest = json.loads((ROOT / "manifests" / "smoke.json").read_text())
    for entry in manifest["suites"].values():
        entry["cases"] = entry["cases"][:2]
    stream = b"".join(b"data: " + BODY + b"\n\n" for _ in range(3)) + b"data: [DONE]\n\n"
    return {
        "arms file": (arms, feed_arms, False),
        "manifest": ([json.dumps(manifest).encode()], feed_manifest, True),
        "response line": (lines[:5], feed_line, False),
        "score vector": (VECTORS, feed_vector, True),
        "event stream": ([stream, BODY], feed_stream, False),
    }


VECTORS = [
    json.dumps(row).encode()
    for row in (
        {
            "id": "simple_1", "suite": "bfcl", "category": "simple_python",
            "functions": [{"name": "f", "description": "", "parameters": {
                "type": "dict", "properties": {"x": {"type": "integer", "description": ""}},
                "required": ["x"]}}],
            "gold": [{"f": {"x": [3]}}],
            "calls": [{"name": "f", "arguments": {"x": 3}}],
        },
        {"id": "g1", "suite": "gsm8k", "gold": "#### 1,234", "output": "so #### 1234."},
    )
]  # fmt: skip


def fuzz(folder: Path, shares: dict[str, int], seed: int) -> list[Tally]:
    """Feed so many inputs of each kind; one tally for each kind."""
    tallies = []
    for kind, (sound, feed, is_json) in _seeds(folder).items():
        rng, tally = random.Random(f"{seed} {kind}"), Tally(f"fuzz: {kind}")
        for _ in range(shares[kind]):
            _one(tally, feed, variants(rng.choice(sound), rng, is_json=is_json))
        tallies.append(tally)
    return tallies


def _one(tally: Tally, feed: Feed, data: bytes) -> None:
    tally.times += 1
    try:
        feed(data)
    except HarnessError as error:
        place = str(error).startswith(("a.yaml", "m.json"))
        tally.check(place and len(str(error)) > 20, f"{error!r} of {data[:300]!r}")
    except Exception as error:  # noqa: BLE001  # any other exception is what the fuzz looks for
        tally.check(False, f"{type(error).__name__} {error} of {data[:2000]!r}")


SHARES = {"arms file": 1, "manifest": 1, "response line": 3, "score vector": 2, "event stream": 3}


def shares_of(total: int) -> dict[str, int]:
    """Divide a number of inputs among the kinds: slow readers get fewer."""
    parts = sum(SHARES.values())
    return {kind: -(-total * share // parts) for kind, share in SHARES.items()}
