"""One tree of errors.  Each class owns its exit code; each instance may carry a hint to type.

AtlasError                    70  our own bug, unless a class below says otherwise
├── UsageError                 2  a wrong word on the command line
├── InventoryError             2  hosts.yaml: every fault at once, each with line and column
├── NothingSelected            5  a pattern or filter left no host or cell
├── StoreError                 2  a run that is not there, is unreadable or is too new
├── WireError                  4  a host sent something that is not a result
└── HostError                  4  one host cannot take part; becomes that host's row
    ├── Unreachable            4  no connection
    │   └── HostKeyError       4  the key is unknown, changed or revoked
    ├── AuthError              4  the host refused our keys
    ├── Blocked                4  connected, but the host is not ready
    ├── CommandFailed          4  a remote act ended badly
    ├── DeadlineExceeded       1  a remote act did not end in time
    └── Cancelled              1  the run was interrupted
"""

from __future__ import annotations


class AtlasError(Exception):
    """The root.  `exit_code` is what the process ends with when this reaches the command line."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AtlasError):
    """A wrong word on the command line."""

    exit_code = 2


class InventoryError(AtlasError):
    """Everything that is wrong with hosts.yaml, one line a fault."""

    exit_code = 2

    def __init__(self, faults: list[str], *, hint: str | None = None) -> None:
        super().__init__("\n".join(faults), hint=hint)
        self.faults = faults


class NothingSelected(AtlasError):
    """A pattern or a filter left nothing to do."""

    exit_code = 5


class StoreError(AtlasError):
    """A run is not there, cannot be read, or was written by a newer version."""

    exit_code = 2


class WireError(AtlasError):
    """What a host sent is not a result; `message` says what is wrong with it."""

    exit_code = 4


class HostError(AtlasError):
    """One host cannot take part.  `reason` is the code that its row shows."""

    exit_code = 4
    reason = "host_error"

    def __init__(self, message: str, *, hint: str | None = None, reason: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if reason is not None:
            self.reason = reason


class Unreachable(HostError):
    """No connection could be made."""

    reason = "unreachable"


class HostKeyError(Unreachable):
    """The host's key is unknown, changed or revoked; nothing was sent to it."""

    reason = "host_key"


class AuthError(HostError):
    """The host refused every key that was offered."""

    reason = "auth"


class Blocked(HostError):
    """The host was reached but is not ready (no python, no space, no such user ...)."""

    reason = "blocked"


class CommandFailed(HostError):
    """A remote act ended badly; the message carries its argv, exit code and last lines."""

    reason = "command_failed"


class DeadlineExceeded(HostError):
    """A remote act, or the whole host, did not end by its deadline."""

    exit_code = 1
    reason = "deadline"


class Cancelled(HostError):
    """The run was interrupted before this host ended."""

    exit_code = 1
    reason = "interrupted"
