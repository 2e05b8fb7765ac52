"""Pure-C tokens: all C streams past their first token and none ended, by the client's clock."""

from __future__ import annotations

from collections.abc import Sequence

from evalharness.nll import SUITE
from evalharness.nll.overlap import annotate
from evalharness.nll.score import score_tokens
from evalharness.types import NllRow, Response
from tests.nll.answers import PROMPT, answer, case, chunk, context, stream


def streamed(sent_ns: int, *, token_ns: Sequence[Sequence[int]]) -> tuple[NllRow, Response]:
    """A response whose chunk k holds len(token_ns[k]) tokens, all at token_ns[k][0]."""
    count = sum(len(one) for one in token_ns)
    item = case(continuation=[9] * count)
    chunks = [chunk([9] * len(one), [-1.0] * len(one)) for one in token_ns]
    chunks[0]["choices"][0]["prompt_token_ids"] = PROMPT
    times = [one[0] for one in token_ns]
    response = answer(
        SUITE.request(item, context("decode")),
        stream(*chunks),
        sent_ns=sent_ns,
        done_ns=times[-1] + 1,
        chunk_ns=(*times, times[-1] + 1),
    )
    row = score_tokens(item, response)
    assert row.outcome == "observed", row.reason
    return row, response


def run(*made: tuple[NllRow, Response], concurrency: int) -> list[NllRow]:
    return annotate([one[0] for one in made], [one[1] for one in made], concurrency=concurrency)


def test_two_streams_side_by_side() -> None:
    a = streamed(0, token_ns=[[10], [20], [30], [40]])
    b = streamed(0, token_ns=[[15], [21], [31]])
    first, second = run(a, b, concurrency=2)
    # a's token at 20: its step began at 10, before b's first token at 15, so b may have been in
    # its prefill. At 30 both decode. At 40 b has ended.
    assert first.pure == (False, False, True, False)
    assert second.pure == (False, True, True)
    assert first.in_flight == (2, 2, 2, 1) and second.in_flight == (2, 2, 2)


def test_a_late_neighbour_in_prefill_makes_a_step_impure() -> None:
    a = streamed(0, token_ns=[[10], [20], [30], [40], [50]])
    b = streamed(25, token_ns=[[35], [45], [55]])
    row, _ = run(a, b, concurrency=2)
    # [30, 40] holds b's first token; [40, 50] is clean.
    assert row.pure == (False, False, False, False, True)
    assert row.in_flight == (1, 1, 2, 2, 2)


def test_one_stream_alone_is_pure_at_c1_only() -> None:
    alone = streamed(0, token_ns=[[10], [20], [30]])
    assert run(alone, concurrency=1)[0].pure == (False, True, True)
    assert run(alone, concurrency=4)[0].pure == (False, False, False)


def test_tokens_of_one_chunk_share_its_step() -> None:
    alone = streamed(0, token_ns=[[10, 10], [20, 20]])
    assert run(alone, concurrency=1)[0].pure == (False, False, True, True)


def test_without_arrival_times_nothing_is_claimed() -> None:
    row, response = streamed(0, token_ns=[[10], [20]])
    bare = type(response)(
        **{name: getattr(response, name) for name in response.__slots__} | {"chunk_ns": ()}
    )
    assert run((row, bare), concurrency=1)[0].pure == (False, False)


def test_the_suite_annotates() -> None:
    alone = streamed(0, token_ns=[[10], [20]])
    assert SUITE.annotate_cell is not None
    (row,) = SUITE.annotate_cell([alone[0]], [alone[1]], concurrency=1)
    assert row.pure == (False, True)
