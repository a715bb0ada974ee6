"""WHAT WRAPS the command: pure functions, argv -> argv, one module a runtime, the name is the key.

A `bare` target is wrapped by nothing and has no module.

CONTAINERS    an image: docker, podman, apptainer; devices.py and run_words.py hold what they share
faults.py     what an engine's refusal means and the command that mends it
facts.py      what a host and its engine are, found through any transport
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.records.containers import ContainerJob, EngineName
from harness.runtimes import apptainer, docker, podman
from harness.runtimes.facts import find_engine, find_host, find_image

__all__ = ["CONTAINERS", "USERS", "ContainerWrap", "find_engine", "find_host", "find_image"]

ContainerWrap = Callable[[Sequence[str], ContainerJob], tuple[str, ...]]

CONTAINERS: Mapping[EngineName, ContainerWrap] = {
    "docker": docker.wrap,
    "podman": podman.wrap,
    "apptainer": apptainer.wrap,
}
# uid:gid inside, as each runtime decides it
USERS: Mapping[EngineName, Callable[[ContainerJob], str]] = {
    "docker": docker.user,
    "podman": podman.user,
    "apptainer": apptainer.user,
}
