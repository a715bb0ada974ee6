"""What a container run is made of: facts of a host and its engine, the job, what ran.

Every fact stands alone: one that could not be found is None or empty, and `unknown` says why.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import BackendName, Count, Record, Seconds, Short, StrictRecord, Text

EngineName = Literal["docker", "podman", "apptainer"]

# None of these may start with '-': each becomes a word of an engine's command line.
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/][A-Za-z0-9._/:@+-]{0,400}$")]
DeviceWish = Annotated[
    str, StringConstraints(pattern=r"^([0-9]{1,3}|GPU-[0-9A-Fa-f-]{8,60}|MIG-[0-9A-Za-z/-]{8,100})$")
]
ContainerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9_.-]{0,120}$")]
# A volume's parts are separated by ':'; an engine has no way to quote one.
BoundFolder = Annotated[str, StringConstraints(pattern=r"^/[^:,\x00-\x1f\x7f]+$", max_length=1000)]
# No NUL: a command line cannot carry one.
Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=20_000)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,100}$")]
UserId = Annotated[int, Field(ge=0, le=2**32 - 2)]
Capability = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9]$")]


class DeviceFile(StrictRecord):
    """A device file of the host, as `ls -ln` shows it."""

    path: Short
    mode: Short = Field(description="as crw-rw----, with '+' where an access list widens it")
    uid: UserId
    gid: UserId
    vendor: Short | None = Field(None, description="PCI vendor of a render node, as 0x8086")

    @property
    def open_to_all(self) -> bool:
        """True where every user may read and write it."""
        return self.mode[7:9] == "rw"


class MigSlice(StrictRecord):
    """One MIG instance of a GPU."""

    index: Count
    uuid: Short
    profile: Short


class NvidiaGpu(StrictRecord):
    """One GPU that the NVIDIA driver lists."""

    index: Count
    name: Short
    uuid: Short
    capability: Capability | None = None
    slices: tuple[MigSlice, ...] = ()


class HostFacts(StrictRecord):
    """What a host is and which accelerators its drivers show, found without a python there."""

    system: Short | None = Field(None, description="as `uname -s` says")
    machine: Short | None = Field(None, description="as `uname -m` says")
    uid: UserId | None = Field(None, description="of the user that runs commands there")
    gid: UserId | None = None
    groups: tuple[UserId, ...] = ()
    device_files: tuple[DeviceFile, ...] = ()
    selinux_enforcing: bool | None = None
    cdi_specs: tuple[Short, ...] = Field((), description="files below /etc/cdi and /var/run/cdi")
    cdi_devices: tuple[Short, ...] | None = Field(None, description="as `nvidia-ctk cdi list` names them")
    nvidia_toolkit: bool | None = Field(None, description="the NVIDIA container toolkit is installed")
    nvidia_gpus: tuple[NvidiaGpu, ...] = ()
    nvidia_driver: Short | None = None
    nvidia_fault: Text | None = Field(None, description="what nvidia-smi said instead of a list")
    amd_driver: Short | None = None
    unknown: dict[Short, Text] = Field(default_factory=dict)

    def files(self, prefix: str) -> tuple[DeviceFile, ...]:
        """The device files whose path starts with `prefix`."""
        return tuple(file for file in self.device_files if file.path.startswith(prefix))

    def render_nodes(self, vendor: str) -> tuple[DeviceFile, ...]:
        """The render nodes of one PCI vendor, in order; a node of unknown vendor may be anyone's."""
        return tuple(node for node in self.files("/dev/dri/renderD") if node.vendor in (vendor, None))


class EngineFacts(StrictRecord):
    """What a container engine is and can do, as its own `info` tells."""

    engine: EngineName
    version: Short
    client_version: Short | None = None
    architecture: Short | None = Field(None, description="of the machine that runs containers, as amd64")
    system: Short | None = None
    rootless: bool = False
    userns_remap: bool = False
    selinux: bool = False
    cgroup_version: Short | None = None
    memory_bytes: Count | None = Field(None, description="of the machine that runs containers")
    memory_limit: bool = True
    pids_limit: bool = True
    runtimes: tuple[Short, ...] = ()
    cdi_enabled: bool | None = None
    cdi_devices: tuple[Short, ...] | None = Field(None, description="None where this engine does not list them")
    security_options: tuple[Short, ...] = ()


class ImageState(StrictRecord):
    """An image as the engine that will run it has it."""

    id: Short | None = None
    repo_digest: Short | None = Field(None, description="None for an image that no registry gave")
    architecture: Short | None = None
    system: Short | None = None
    labels: dict[Short, Text] = Field(default_factory=dict)


class ContainerSpec(StrictRecord):
    """What a target asks for: image, backend, devices, limits."""

    image: ImageName
    backend: BackendName
    devices: tuple[DeviceWish, ...] = Field((), description="index, GPU uuid or MIG uuid; all if empty")
    memory_bytes: Annotated[int, Field(ge=2**26, le=2**50)] | None = Field(
        None, description="three quarters of the machine's if null"
    )
    pids: Annotated[int, Field(ge=16, le=2**22)] = 4096
    shm_bytes: Annotated[int, Field(ge=2**16, le=2**45)] = Field(2**30, description="size of /dev/shm")


class ContainerJob(ContainerSpec):
    """One container to run: the input of every runtime's `wrap`."""

    name: ContainerName
    folder: BoundFolder = Field(description="the host's private directory, bound into the container")
    uid: UserId = Field(description="owner of the directory: who writes there")
    gid: UserId
    deadline: Seconds = Field(description="seconds after which the container ends itself")
    environment: dict[Variable, Argument] = Field(default_factory=dict)
    engine: EngineFacts
    host: HostFacts


class ContainerFacts(Record):
    """What wrapped the payload: part of the result."""

    engine: EngineName
    engine_version: Short
    client_version: Short | None = None
    rootless: bool
    image: Short
    image_id: Short | None = None
    repo_digest: Short | None = Field(None, description="None for an image that no registry gave")
    image_architecture: Short | None = None
    image_labels: dict[Short, Text] = Field(default_factory=dict)
    backend: BackendName
    devices: tuple[Short, ...] = ()
    user: Short = Field(description="uid:gid inside; 0:0 in rootless docker is the host's own user outside")
    memory_bytes: Count | None = None
    flags: tuple[Text, ...] = Field((), description="every word between `run` and the image")
    notes: tuple[Text, ...] = Field((), description="what this engine could not be asked for")
