"""The machines of `make demo`: two good ones and one of each common trouble, all on this computer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.fleet import Fleet
from harness.launchers import keeper
from harness.records.view import Report
from harness.records.work import OutcomeStatus


class Machine(NamedTuple):
    """What a newcomer is told, how its row must end, and how the fleet makes it so."""

    says: str
    ends: OutcomeStatus
    reason: str | None
    fields: Mapping[str, object]


MACHINES: Mapping[str, Machine] = {
    "good-1": Machine("answers", "answered", None, {}),
    "good-2": Machine("answers too", "answered", None, {}),
    "wrong-key": Machine("shows another host key than the one that is known", "unreachable", "host_key_changed",
                         {"known_hosts": "wrong"}),
    "no-torch": Machine("has a python without torch", "blocked", "no_torch", {"torch": False}),
    "down": Machine("does not listen", "unreachable", "unreachable", {"state": "down", "connect_timeout": 5.0}),
}  # fmt: skip


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[Fleet]:
    """The demonstration's fleet, running; however it is left, nothing that was started here stays.

    All that its machines write lies below `folder`, which is the caller's to remove.
    Raises Blocked where OpenSSH's server is missing.
    """
    work = folder / "work"
    try:
        with Fleet(folder) as fleet:
            for name, machine in MACHINES.items():
                fleet.add(name, workdir=str(work / name), **machine.fields)  # type: ignore[arg-type]
            yield fleet
    finally:
        for run in work.glob("*/*/run-*"):  # there is one only where the probe was stopped at once
            keeper.end(run)


def surprises(report: Report) -> list[str]:
    """A sentence for each machine that did not end as it must."""
    ended = {target.host: target.outcome for target in report.targets}
    found = []
    for name, machine in MACHINES.items():
        outcome = ended.get(name)
        status, reason = (outcome.status, outcome.reason) if outcome else ("absent", None)
        if (status, reason) != (machine.ends, machine.reason):
            was, due = (" ".join(filter(None, words)) for words in ((status, reason), (machine.ends, machine.reason)))
            found.append(f"{name} ended as {was}, not as {due}")
    return found
