"""WHAT WRAPS the command: pure functions, argv -> argv, one module a runtime, the name is the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.records import Target
from harness.runtimes import bare

Wrap = Callable[[Sequence[str], Target], tuple[str, ...]]

RUNTIMES: dict[str, Wrap] = {"bare": bare.wrap}
