"""What engines answer in JSON, as records: only the fields that are used, all of them optional.

Docker and podman spell most of `container inspect` and `image inspect` alike; their `info` differs.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel, to_pascal

from harness.errors import WireError
from harness.records.base import Record


class _Pascal(Record):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_pascal, populate_by_name=True)


class _Camel(Record):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Discovered(_Pascal):
    """A device that docker found by a CDI specification."""

    source: str = ""
    id: str = Field("", alias="ID")


class ClientInfo(_Pascal):
    """The docker command itself."""

    version: str | None = None


class DockerInfo(_Pascal):
    """`docker info`."""

    server_version: str | None = None
    architecture: str | None = None
    os_type: str | None = Field(None, alias="OSType")
    mem_total: int | None = None
    memory_limit: bool | None = None
    pids_limit: bool | None = None
    cgroup_version: str | None = None
    security_options: list[str] | None = None
    runtimes: dict[str, Any] | None = None
    cdi_spec_dirs: list[str] | None = Field(None, alias="CDISpecDirs")
    discovered_devices: list[Discovered] | None = None
    server_errors: list[str] | None = None
    client_info: ClientInfo | None = None
    host: dict[str, Any] | None = Field(None, alias="host", description="only podman's stand-in for docker has it")


class PodmanSecurity(_Camel):
    """`podman info`: host.security."""

    rootless: bool = False
    selinux_enabled: bool = False


class PodmanRuntime(_Camel):
    """`podman info`: host.ociRuntime."""

    name: str = ""


class PodmanHost(_Camel):
    """`podman info`: host."""

    arch: str | None = None
    os: str | None = None
    cgroup_version: str | None = None
    cgroup_controllers: list[str] | None = None
    mem_total: int | None = None
    oci_runtime: PodmanRuntime = PodmanRuntime()
    security: PodmanSecurity = PodmanSecurity()


class PodmanVersion(_Pascal):
    """`podman info`: version."""

    version: str | None = None


class PodmanInfo(_Camel):
    """`podman info`."""

    host: PodmanHost
    version: PodmanVersion = PodmanVersion()


class ImageConfig(_Pascal):
    """`image inspect` and `container inspect`: Config."""

    labels: dict[str, str] | None = None


class Image(_Pascal):
    """One image of `image inspect`."""

    id: str
    repo_digests: list[str] | None = None
    architecture: str | None = None
    os: str | None = None
    config: ImageConfig | None = None


class ContainerState(_Pascal):
    """`container inspect`: State."""

    status: str
    exit_code: int = 0
    oom_killed: bool = Field(False, alias="OOMKilled")
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class Container(_Pascal):
    """One container of `container inspect`."""

    name: str
    created: str | None = None
    state: ContainerState
    config: ImageConfig = ImageConfig()

    @property
    def plain_name(self) -> str:
        """The name; docker's inspect puts a slash before it."""
        return self.name.removeprefix("/")

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.config.labels or {}

    @property
    def seconds(self) -> float | None:
        """How long it ran, once it has ended."""
        started, finished = moment(self.state.started_at), moment(self.state.finished_at)
        return finished - started if started and finished else None


Reply = TypeVar("Reply", bound=Record)


def read(kind: type[Reply], text: bytes) -> Reply:
    """One reply; raises WireError with the first thing that is wrong."""
    try:
        return kind.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise WireError(f"the engine's reply is not {kind.__name__}: {where}: {first['msg']}") from error
    except ValueError as error:
        raise WireError(f"the engine's reply is not JSON: {text[:80]!r}") from error


def read_list(kind: type[Reply], text: bytes) -> tuple[Reply, ...]:
    """The replies of an `inspect`, which is a list; raises WireError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WireError(f"the engine's reply is not JSON: {text[:80]!r}") from error
    return tuple(read(kind, json.dumps(item).encode()) for item in found or ())


def moment(text: str | None) -> float | None:
    """Seconds since 1970 of an engine's time (nanoseconds, Z or an offset); None for none and year one."""
    found = re.match(r"(\d{4})-(\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)? ?(Z|[+-]\d\d:?\d\d)?", text or "")
    if found is None or int(found[1]) < 1970:
        return None
    offset = (found[5] or "Z").replace("Z", "+00:00")
    offset = offset if ":" in offset else f"{offset[:3]}:{offset[3:]}"
    base = datetime.fromisoformat(f"{found[1]}-{found[2]}T{found[3]}{offset}").astimezone(timezone.utc)
    return base.timestamp() + float(found[4] or 0)
