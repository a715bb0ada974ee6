"""WHO STARTS the command on a host: one file a launcher, its name is the key.

    direct   the keeper, detached, in a private directory of the host
"""

from __future__ import annotations

from harness.launchers import direct

LAUNCHERS = {"direct": direct}
