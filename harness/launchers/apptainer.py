"""Start a command in an apptainer image: there is no daemon to keep it, so the direct launcher does.

The host therefore needs a python for the keeper, as a bare target does; the image brings its own.
"""

from __future__ import annotations

from pathlib import Path

from harness.launchers import direct
from harness.launchers.base import Place, State
from harness.launchers.container import ContainerLauncher
from harness.runtimes import run_words
from harness.transports.base import Transport

KEEPER_PYTHON = "python3"


class ApptainerLauncher(ContainerLauncher):
    """The acts of launchers.base.Launcher, for one spec on one host; see direct for what they raise."""

    def prepare(self, transport: Transport, python: str, root: str | None) -> Place:
        """Make a private directory on the host; `python` is the image's."""
        made = direct.prepare(transport, KEEPER_PYTHON, root)
        return Place(made.root, made.folder, python, made.python_version, run_words.INSIDE)

    def push(self, transport: Transport, place: Place, payload: Path) -> str:
        """Put payload and keeper into the directory; returns the payload's sha256."""
        return direct.push(transport, _kept(place), payload)

    def start(self, transport: Transport, place: Place, argv: tuple[str, ...], environment: dict[str, str],
              deadline: float) -> None:  # fmt: skip
        """Start argv in the image, detached, with a deadline in seconds."""
        direct.start(transport, _kept(place), self.wrap(place, argv, environment, deadline), {}, deadline)

    def poll(self, transport: Transport, place: Place, offset: int) -> State:
        """What the command is doing; `offset` is where the last poll's progress ended."""
        return direct.poll(transport, _kept(place), offset)

    def cancel(self, transport: Transport, place: Place) -> tuple[int | str, ...]:
        """End apptainer and all that it started; returns the pids that would not die."""
        return direct.cancel(transport, _kept(place))

    def clean(self, transport: Transport, place: Place) -> str | None:
        """Remove the directory; returns why it could not be, or None."""
        return direct.clean(transport, _kept(place))

    def discard(self, transport: Transport, place: Place) -> str | None:
        """Remove a directory in which nothing was started; returns why it could not be, or None."""
        return direct.discard(transport, _kept(place))


def _kept(place: Place) -> Place:
    """The directory as the keeper sees it: from outside, with the host's python."""
    return Place(place.root, place.folder, KEEPER_PYTHON, place.python_version)
