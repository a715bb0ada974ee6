"""The machines of `make demo`: two good ones and one of each common trouble, all on this computer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.fleet import Fleet

# name -> what a newcomer is told, and how the fleet makes it so.
MACHINES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "good-1": ("answers", {}),
    "good-2": ("answers too", {}),
    "wrong-key": ("shows another host key than the one that is known", {"known_hosts": "wrong"}),
    "no-torch": ("has a python without torch", {"torch": False}),
    "down": ("does not listen", {"state": "down", "connect_timeout": 5.0}),
}


def build(folder: Path) -> Fleet:
    """The demonstration's fleet, running; stop it with its `stop`, or use it as a context.

    Raises Blocked where OpenSSH's server is missing.
    """
    fleet = Fleet(folder)
    for name, (_, fields) in MACHINES.items():
        fleet.add(name, **fields)  # type: ignore[arg-type]
    return fleet
