"""The isolated judge: `python -m evalharness.schema.worker`, one JSON line in, one out.

Standard input: [schema text, output, finish_reason, CPU limit in seconds].
Standard output: first {"missing_formats": [...]}, then one tag (a JSON text) per line in.
The process dies of SIGPROF when one case takes more than its CPU time; its parent starts another.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading

from evalharness.schema.formats import missing_formats
from evalharness.schema.judge import judge
from evalharness.strict_json import allow_any_integer

STACK_BYTES = 1 << 30  # address space; touched only as deep as a value goes
RECURSION_LIMIT = 400_000  # below what the stack holds at about 2 KiB a frame
ADDRESS_SPACE_BYTES = 6 << 30


def serve() -> None:
    """Answer lines until standard input ends."""
    write = sys.stdout.write
    write(json.dumps({"missing_formats": missing_formats()}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        schema_text, output, finish_reason, cpu_s = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        tag = _bounded_judge(schema_text, output, finish_reason)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(json.dumps(tag) + "\n")
        sys.stdout.flush()


def _serve_until_left() -> None:
    try:
        serve()
    except BrokenPipeError:  # the parent was ended in the middle of a case: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bounded_judge(schema_text: str, output: str, finish_reason: str | None) -> str:
    try:
        return judge(schema_text, output, finish_reason)
    except RecursionError:
        return "judge:too_deep"
    except MemoryError:
        return "judge:memory"


def main() -> int:
    """Lift the interpreter's limits, set the process's own, and serve from a deep stack."""
    allow_any_integer()
    sys.setrecursionlimit(RECURSION_LIMIT)
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]  # a lower limit stays
    if allowed == resource.RLIM_INFINITY or allowed > ADDRESS_SPACE_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=_serve_until_left)
    thread.start()
    thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
