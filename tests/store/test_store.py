"""The store: what is acknowledged is on disk, and no damage is ever read as a response."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.errors import IncompleteError, StoreError
from evalharness.store import (
    decode_line,
    encode_line,
    iter_responses,
    read_responses,
    run_lock,
    write_json,
    write_sums,
)
from evalharness.store.writer import ResponseWriter
from evalharness.types import Response, canonical_json

EXAMPLES = 300 * int(os.environ.get("EVALHARNESS_FUZZ", "1"))
PLAIN = Response(
    case_id="case-1",
    replicate=0,
    request_digest="7" * 64,
    endpoint="/v1/completions",
    request_body='{"model":"m"}',
    status="ok",
    http_code=200,
    body='{"choices":[{"text":"a\\u2028b"}]}',
    body_encoding="utf-8",
    error=None,
    sent_ns=10,
    first_byte_ns=20,
    done_ns=30,
    in_flight=4,
    chunk_ns=(20, 30),
    usage='{"completion_tokens":4}',
    finish_reason="stop",
    token_ids=(1, 2),
)
TEXT = st.text(max_size=60)
TIMES = st.none() | st.integers(0, 2**62)
RESPONSES = st.builds(
    Response,
    case_id=TEXT,
    replicate=st.integers(0, 9),
    request_digest=st.just("7" * 64),
    endpoint=st.just("/v1/completions"),
    request_body=TEXT,
    status=st.sampled_from(["ok", "http_error", "transport_error", "timeout"]),
    http_code=st.none() | st.integers(100, 599),
    body=TEXT,
    body_encoding=st.just("utf-8"),
    error=st.none() | TEXT,
    sent_ns=st.integers(0, 2**62),
    first_byte_ns=TIMES,
    done_ns=TIMES,
    in_flight=st.integers(1, 64),
    chunk_ns=st.lists(st.integers(0, 2**62), max_size=4).map(tuple),
    usage=st.none() | st.dictionaries(TEXT, st.integers(0, 99), min_size=1).map(canonical_json),
    finish_reason=st.none() | TEXT,
    token_ids=st.none() | st.lists(st.integers(0, 2**31), max_size=4).map(tuple),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(RESPONSES)
def test_a_line_gives_its_response_back(response: Response) -> None:
    line = encode_line(response)
    assert line.count(b"\n") == 1 and line.endswith(b'"}\n')
    back = decode_line(line[:-1]).response
    usage = json.loads(back.usage or "null"), json.loads(response.usage or "null")
    assert usage[0] == usage[1]
    same = dataclasses.replace(back, usage=response.usage)
    assert same == response


def test_lone_surrogates_survive() -> None:
    odd = dataclasses.replace(PLAIN, case_id="x\ud800", error="\udfff")
    assert decode_line(encode_line(odd)[:-1]).response == odd


def test_the_check_is_the_documented_one() -> None:
    line = encode_line(PLAIN)[:-1]
    row = json.loads(line)
    head = line[: line.rindex(b',"check":')] + b"}"
    assert row["check"] == hashlib.sha256(head).hexdigest()[:16]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_any_damage_to_a_line_is_found(data: st.DataObject) -> None:
    line = bytearray(encode_line(PLAIN)[:-1])
    kind = data.draw(st.sampled_from(["flip", "cut", "drop", "insert"]))
    at = data.draw(st.integers(0, len(line) - 1))
    if kind == "flip":
        line[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del line[at:]
    elif kind == "drop":
        del line[at]
    else:
        line.insert(at, data.draw(st.integers(0, 255)))
    if bytes(line) != encode_line(PLAIN)[:-1]:
        with pytest.raises(ValueError, match=r"torn|altered|not a response"):
            decode_line(bytes(line))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_told_apart_from_a_response(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"torn|altered|not a response"):
        decode_line(data)


async def written(path: Path, count: int) -> str:
    writer = ResponseWriter(path)
    for number in range(count):
        writer.append(dataclasses.replace(PLAIN, case_id=f"case-{number}"))
        if number % 40 == 0:
            await asyncio.sleep(0.003)
    digest = await writer.close()
    assert writer.acknowledged == count
    return digest


async def test_writer_and_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    digest = await written(path, 500)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    found = read_responses(path)
    assert [stored.response.case_id for stored in found] == [f"case-{n}" for n in range(500)]


async def test_nothing_counts_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fdatasync

    def slow(fd: int) -> None:
        real(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", slow)
    path = tmp_path / "a.jsonl"
    writer = ResponseWriter(path)
    for number in range(50):
        writer.append(dataclasses.replace(PLAIN, case_id=f"case-{number}"))
        await asyncio.sleep(0.001)
        durable = path.read_bytes()[: synced[-1]] if synced else b""
        assert writer.acknowledged <= durable.count(b"\n")
    await writer.close()
    assert writer.acknowledged == 50
    assert len(synced) < 50, "synced in groups"


async def test_a_full_disk_is_told_and_what_was_acknowledged_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    writer = ResponseWriter(path)
    writer.append(PLAIN)
    await writer.drain()

    def full(_fd: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.append(dataclasses.replace(PLAIN, case_id="other"))
    with pytest.raises(IncompleteError, match=r"No space left .* 1 responses are safe"):
        await writer.close()
    assert [stored.response for stored in read_responses(path)] == [PLAIN]


async def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("old")
    with pytest.raises(StoreError, match="cannot be created"):
        ResponseWriter(tmp_path / "a.jsonl")


async def test_faults_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    await written(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    for data, said in (
        (lines[0] + lines[1][:-7], "line 2: torn"),
        (lines[0] + lines[1].replace(b"case-1", b"case-9") + lines[2], "line 2: altered"),
        (lines[0] + lines[1] + lines[1], "line 3: case 'case-1' replicate 0 stands twice"),
        (lines[0] + b"{}\n", "line 2: torn"),
    ):
        path.write_bytes(data)
        with pytest.raises(StoreError) as caught:
            list(iter_responses(path))
        assert f"{path} {said}" in str(caught.value)


def test_the_lock_says_who(tmp_path: Path) -> None:
    said = f"in use by process {os.getpid()} on "
    with run_lock(tmp_path), pytest.raises(StoreError, match=said), run_lock(tmp_path):
        raise AssertionError("held twice")
    with run_lock(tmp_path):
        pass


def test_sums_leave_out_themselves_and_hidden_files(tmp_path: Path) -> None:
    write_json(tmp_path / "b.json", {"x": 1})
    (tmp_path / ".lock").write_text("me")
    write_sums(tmp_path)
    write_sums(tmp_path)
    digest = hashlib.sha256((tmp_path / "b.json").read_bytes()).hexdigest()
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  b.json\n"
