"""Start a command in a container and let the engine keep it: docker and podman, through any transport.

The host needs an engine and /bin/sh, no python.  A container ends at its deadline by itself, and goes
with everything in it when it is removed: process 1 takes the others along.  One that was left behind
is found by its label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from harness.errors import Blocked, CommandFailed, DeadlineExceeded, HostError
from harness.launchers import shell
from harness.launchers.base import Place, State
from harness.records.containers import (
    ContainerFacts,
    ContainerJob,
    ContainerSpec,
    EngineFacts,
    EngineName,
    HostFacts,
    ImageState,
)
from harness.runtimes import CONTAINERS, USERS, facts, faults, replies, run_words
from harness.transports.base import Completed, Transport

KEEP_HOURS = 24.0  # how long a directory or a container that was left behind may be asked for
ACT_TIMEOUT = 60.0  # seconds for one short act
START_TIMEOUT = 180.0  # a cold engine unpacks the image's layers first
STOP_GRACE = 5  # seconds between asking and killing: the payload writes its last record
OVERDUE = 120.0  # seconds past its own deadline after which a container is taken for stuck
FREE_KIB = 256 * 1024  # the precompiled header alone takes half of it
PROGRESS_CHUNK = 32 * 1024
# Who the command is where the user of the host is root: an id that no host gives to anyone.
NOBODY = (65532, 65532)
_GONE = re.compile(r"no such (container|object)|no container with name", re.IGNORECASE)


def find(transport: Transport, engine: EngineName, spec: ContainerSpec) -> EngineLauncher:
    """A launcher for this host: its facts, its engine's, the image's; nothing is started or written.

    Raises Blocked, with the command that mends it, where the engine is absent, down or closed to this user,
    the image absent or of another architecture, or the device not to be had.
    """
    engine_facts = facts.find_engine(transport, engine)
    image = facts.find_image(transport, engine_facts, spec.image, spec.backend)
    launcher = EngineLauncher(spec, engine_facts, facts.find_host(transport), image)
    launcher.job(Place("/", f"/{run_words.LABEL}", "", "", run_words.INSIDE), {}, 1.0).check_devices()
    return launcher


@dataclass(frozen=True)
class EngineLauncher:
    """The acts of launchers.base.Launcher for one spec on one host."""

    spec: ContainerSpec
    engine: EngineFacts
    host: HostFacts
    image: ImageState
