"""WHO STARTS the command on a host: one file a launcher, its name is the key.

direct       the keeper, detached, in a private directory of the host
containers   an engine keeps the command: containers.find gives the launcher that fits the host's
"""

from __future__ import annotations

from harness.launchers import containers, direct

LAUNCHERS = {"direct": direct, "containers": containers}
