"""What hosts.yaml says: Host and Target, with defaults and groups already applied.

The Settings classes are what a host or a target may set wherever it is described; hosts_file.py
builds the file's own layout from them, so that no field is written twice.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from harness.records.base import BackendName, Name, Short, StrictRecord
from harness.records.containers import DeviceWish, ImageName


def _split_jump(value: Any) -> Any:
    """Let `jump` be written as ssh's -J takes it: hops in one string, separated by commas."""
    if isinstance(value, str):
        return tuple(hop.strip() for hop in value.split(","))
    return tuple(value) if isinstance(value, list) else value


def _check_hop_port(hop: str) -> str:
    port = hop.rpartition("]")[2].partition(":")[2]
    if port and not 1 <= int(port) <= 65535:
        raise ValueError("a port is a number from 1 to 65535")
    return hop


# Neither user, address nor jump may start with '-': they become words of an ssh command line.
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._:%\[\]-]{0,252}$")]
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}$")]
RemotePath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./~+][^\x00-\x1f\x7f]{0,1000}$")]
# An IPv6 address needs its brackets here: without them its last group would read as a port.
Hop = Annotated[
    str,
    StringConstraints(
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}@)?"
        r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]{1,20})?\])(:[0-9]{1,5})?$"
    ),
    AfterValidator(_check_hop_port),
]
Jump = Annotated[tuple[Hop, ...], BeforeValidator(_split_jump, json_schema_input_type=str | tuple[Hop, ...])]


class TargetSettings(StrictRecord):
    """What a target may set: a runtime, a python, the backends to look for."""

    runtime: Literal["bare", "docker", "podman", "apptainer"] = Field(
        default="bare", description="what wraps the command"
    )
    enabled: bool = Field(default=True, description="false: only when it is named, as host/target")
    backend: BackendName | None = Field(default=None, description="of a container: what its image is made for")
    image: ImageName | None = Field(default=None, description="of a container; the backend's image of ours if null")
    gpus: tuple[DeviceWish, ...] = Field(
        default=(), description="of a container: indices, GPU or MIG uuids of the devices to give; all if empty"
    )
    python: RemotePath | None = Field(default=None, description="the host's python if null")
    backends: tuple[BackendName, ...] = Field(default=(), description="backends to look for; all if empty")


class Target(TargetSettings):
    """How to run on a host."""

    name: Name = "native"


class HostSettings(StrictRecord):
    """What a host, a group or the defaults may set."""

    transport: Literal["local", "ssh", "fake"] = "ssh"
    address: Address | None = Field(default=None, description="what ssh connects to; the host's name if null")
    user: User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key: RemotePath | None = Field(default=None, description="private key file on the control machine")
    jump: Jump = Field(default=(), description="[user@]address[:port], nearest first; ssh config's ProxyJump if empty")
    host_key: Annotated[str, StringConstraints(pattern=r"^(strict|accept-new|SHA256:[A-Za-z0-9+/]{43}=?)$")] = "strict"
    python: RemotePath | None = Field(
        default=None, description="python3 if null; on this computer the one that runs the harness"
    )
    timeout: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=1800.0, description="seconds for the whole target"
    )
    connect_timeout: Annotated[float, Field(gt=0, le=600)] = Field(default=15.0, description="seconds")
    cell_timeout: Annotated[float, Field(gt=0, le=86_400)] = Field(default=300.0, description="seconds for one cell")
    workdir: RemotePath | None = Field(
        None, description="where the private run directories lie; the host's TMPDIR if null"
    )
    script: RemotePath | None = Field(default=None, description="transport fake: a file of scripted replies")


class Host(HostSettings):
    """One machine of hosts.yaml, with its defaults and groups applied."""

    name: Name
    groups: tuple[Name, ...] = ()
    targets: tuple[Target, ...] = (Target(),)


class Group(StrictRecord):
    """A group of hosts.yaml and the hosts that name it."""

    name: Name
    description: Short | None = None
    hosts: tuple[Name, ...] = ()


class Inventory(StrictRecord):
    """Everything that hosts.yaml says, in the order of the file."""

    hosts: tuple[Host, ...]
    groups: tuple[Group, ...] = ()
