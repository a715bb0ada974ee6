"""The machines that the contract suite knows, and the programs that it runs on them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from harness.transports import Transport
from harness.transports.fake import FakeReply, FakeScript

PYTHON = sys.executable

# What the suite runs.  Real machines execute these programs; the fake one answers by its script.
SHOW_ARGV = "import json, sys; print(json.dumps(sys.argv[1:]), end='')"
BOTH_STREAMS = "import sys; sys.stdout.write('to out'); sys.stderr.write('to err'); sys.exit(7)"
SUCCEED = "raise SystemExit(0)"
KILL_SELF = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
SLEEP = "import time; time.sleep(60)"
FLOOD = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000)"
READ_STDIN = "import sys; print(len(sys.stdin.read()), end='')"
BINARY = "import sys; sys.stdout.buffer.write(bytes(range(256)))"
BACKGROUND = "sleep 5 & echo started"

FAKE_SCRIPT = FakeScript(
    directories=("/lab",),
    replies=(
        FakeReply(match=re.escape("json.dumps"), show_argv_from=3),
        FakeReply(match="to out", stdout="to out", stderr="to err", exit=7),
        FakeReply(match=re.escape("SystemExit(0)")),
        FakeReply(match=re.escape("os.kill"), exit=-15),
        FakeReply(match=re.escape("time.sleep"), hang=True),
        FakeReply(match="3_000_000", stdout="x", repeat=3_000_000, stderr="y" * 300_000),
        FakeReply(match=re.escape("sys.stdin"), stdout="0"),
        FakeReply(match="echo started", stdout="started\n"),
    ),
)


def program(text: str, *arguments: str) -> list[str]:
    """The argv of one of the programs above."""
    return [PYTHON, "-c", text, *arguments]


@dataclass
class Machine:
    """One machine as the suite sees it: how to reach it, a directory on it, a look at a file's mode."""

    connect: Callable[[], Transport]
    directory: str
    mode_of: Callable[[Transport, str], int]
    makes_bytes: bool = True  # the fake's replies are text
