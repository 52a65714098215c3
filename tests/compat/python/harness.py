"""Runs the cases of one client library, a line of output for each; see ../README.md."""

import os
import signal
import sys
import time

CASE_LIMIT_S = 20

# Where offsets-by-time begins and how far its records lie apart, in milliseconds.
EPOCH_MS = 1_700_000_000_000
STEP_MS = 60_000


# What compaction writes, one round a segment, to a topic with these settings; and what is left of it.
COMPACT = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
ROUNDS = [
    [(b"a", b"0"), (b"b", b"0"), (b"c", b"0")],
    [(b"a", b"1"), (b"b", b"1")],
    [(b"a", b"2")],
    [(b"c", None)],
    [(b"end", b"0")],
]
KEPT = [(4, b"b", b"1"), (5, b"a", b"2"), (6, b"c", None), (7, b"end", b"0")]


class Skip(Exception):
    """The library can't do this; the reason is for the reader."""


def skip(reason):
    """A case that the library can't do."""

    def case():
        raise Skip(reason)

    return case


def arguments():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} BOOTSTRAP PREFIX")
    return sys.argv[1], sys.argv[2]


def records():
    """(key, value, headers): compressible values, a value that is null, a key that is null."""
    headers = [("trace", b"\x00\x01\xff"), ("empty", b"")]
    some = [(b"key-%d" % n, b"value %d " % n * 20, headers) for n in range(50)]
    return some + [(b"gone", None, []), (None, b"no key", headers[:1])]


def same(got, expected, what):
    if got != expected:
        raise AssertionError(f"{what}: expected {expected!r:.200}, got {got!r:.200}")


def until(what, condition, seconds=15):
    """Calls condition() until it gives something true, and returns that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
    raise TimeoutError(f"{what}: not within {seconds} s")


def report(name, run):
    try:
        run()
        line = f"PASS {name}"
    except Skip as reason:
        line = f"SKIP {name} {reason}"
    except BaseException as error:
        text = " ".join(str(error).split())
        line = f"FAIL {name} {type(error).__name__}: {text[:300]}"
    print(line, flush=True)


def run(cases):
    """cases: (name, function) in order. Each has CASE_LIMIT_S; then the process ends, whatever still waits."""

    def too_long(*_):
        raise TimeoutError(f"not done after {CASE_LIMIT_S} s")

    signal.signal(signal.SIGALRM, too_long)
    for name, case in cases:
        signal.alarm(CASE_LIMIT_S)
        report(name, case)
        signal.alarm(0)
    os._exit(0)
