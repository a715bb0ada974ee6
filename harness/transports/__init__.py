"""HOW TO REACH a machine: one file a transport, one contract (base.py) for all."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import cast

from harness.errors import UsageError
from harness.records.inventory import Host
from harness.transports.base import OUTPUT_LIMIT, Completed, Transport

# Named, not imported: `local` must work where Fabric is slow to import or broken.
TRANSPORTS = {
    "fake": "harness.transports.fake:FakeTransport",
    "local": "harness.transports.local:LocalTransport",
    "ssh": "harness.transports.ssh:SshTransport",
}

__all__ = ["OUTPUT_LIMIT", "TRANSPORTS", "Completed", "Transport", "connect"]


def connect(host: Host, *, ssh_config: Path | None = None) -> Transport:
    """The transport of one host, not yet opened.

    `ssh_config` stands in for OpenSSH's own configuration files, as `ssh -F` does.
    Raises UsageError for a transport that does not exist.
    """
    place = TRANSPORTS.get(host.transport)
    if place is None:
        near = difflib.get_close_matches(host.transport, TRANSPORTS, n=1)
        raise UsageError(
            f"{host.name}: there is no transport {host.transport!r}; there are {', '.join(sorted(TRANSPORTS))}",
            hint=f"transport: {near[0]}" if near else None,
        )
    module, _, name = place.partition(":")
    make = getattr(importlib.import_module(module), name)
    return cast(Transport, make(host, ssh_config=ssh_config))
