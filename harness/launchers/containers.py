"""The launcher of a containerised target: facts of the host first, then the launcher that fits its engine."""

from __future__ import annotations

from harness.launchers.apptainer import ApptainerLauncher
from harness.launchers.base import Place
from harness.launchers.engine import EngineLauncher
from harness.records.containers import ContainerSpec, EngineName
from harness.runtimes import facts, run_words
from harness.transports.base import Transport


def find(transport: Transport, engine: EngineName, spec: ContainerSpec) -> EngineLauncher | ApptainerLauncher:
    """A launcher for this host, with all facts; nothing is started or written.

    Raises Blocked, with the command that mends it, where the engine is absent, down or closed to this
    user, the image absent or of another architecture, or the device not to be had.
    """
    engine_facts = facts.find_engine(transport, engine)
    image = facts.find_image(transport, engine_facts, spec.image, spec.backend)
    kind = ApptainerLauncher if engine == "apptainer" else EngineLauncher
    launcher = kind(spec, engine_facts, facts.find_host(transport), image)
    # What cannot be given is refused before a directory is made.
    launcher.wrap(Place("/", "/nowhere", "", "", run_words.INSIDE), ("true",), {}, 1.0)
    return launcher
