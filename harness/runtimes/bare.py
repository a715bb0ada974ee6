"""No wrapper: the host's own python runs the payload."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Target


def wrap(argv: Sequence[str], target: Target) -> tuple[str, ...]:  # noqa: ARG001  every runtime is asked alike
    """The argv as it is; `target` has nothing to add."""
    return tuple(argv)
