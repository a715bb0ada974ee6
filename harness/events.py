"""What happens during a run, as records; progress display and log file listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.records import Outcome

Step = Literal["queued", "connecting", "sending", "running", "cell", "noted", "retrying", "fetching", "ended"]


@dataclass(frozen=True)
class Event:
    """One change of one job.  `outcome` only with `ended`."""

    job: str
    step: Step
    text: str = ""
    outcome: Outcome | None = None


Listener = Callable[[Event], None]
