"""Container images: what docker/images.yaml says of each, what an engine has, what the self-test found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import BackendName, Count, Name, Record, Short, StrictRecord, Text
from harness.records.containers import ImageName, ImageState
from harness.records.inventory import RemotePath

# Images of ours live below `localhost/`: no engine ever asks a public registry for such a name, where
# anybody could have put an image of that name.
NAMESPACE = "localhost/inductor-atlas"

ContainerBackend = Literal["cpu", "cuda", "rocm", "xpu"]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
# By tag: the digest has a field of its own.
BaseName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._:/-]{0,250}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
]
TorchVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+){1,3}[A-Za-z0-9.]{0,20}$")]
IndexAddress = Annotated[str, StringConstraints(pattern=r"^(https?|file)://[^\s@]{1,400}$")]
# Values reach the engine as one word each; a control character in one could only confuse a person.
BuildValue = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,2000}$")]


class ImageSpec(StrictRecord):
    """One image of docker/images.yaml: what it is built from."""

    name: Name
    backend: ContainerBackend
    base: BaseName
    digest: Digest | None = Field(None, description="of the base; null until a registry was asked")
    torch: TorchVersion
    index: IndexAddress = Field(description="where pip finds this build of torch")

    @property
    def reference(self) -> str:
        """The image's name on every engine."""
        return f"{NAMESPACE}-{self.name}:{self.torch}"

    @property
    def pinned_base(self) -> str:
        """The base as FROM takes it: by digest as well where that is known."""
        return f"{self.base}@{self.digest}" if self.digest else self.base

    @property
    def build(self) -> str:
        """Which build of torch: the last word of its index, as cpu, cu130, rocm7.2, xpu."""
        return self.index.rstrip("/").rpartition("/")[2]


class Catalog(StrictRecord):
    """Everything that docker/images.yaml says, in the order of the file."""

    source: Short
    images: tuple[ImageSpec, ...]


class BuildOptions(StrictRecord):
    """What a site needs to build behind its mirrors, proxies and authorities."""

    arguments: dict[Short, BuildValue] = Field(default_factory=dict, description="build arguments, by name")
    wheels: tuple[Short, ...] = Field((), description="wheel files on the control machine; they travel")
    host_wheels: RemotePath | None = Field(None, description="a folder of wheels on the host itself")
    certificates: tuple[Short, ...] = Field((), description="PEM files, NAME.crt, that the image is to trust")
    network: Literal["default", "host", "none"] = Field("default", description="of the build's own commands")
    no_cache: bool = False
    workdir: RemotePath | None = Field(None, description="where the context lies; the host's TMPDIR if null")


class ImageFacts(ImageState):
    """An image as an engine describes it, with what only a person wants to know."""

    reference: ImageName
    id: Short
    created: Short | None = None
    user: Short | None = Field(None, description="whom its commands run as; root if null")
    size_bytes: Count | None = None


class SelfTestCell(Record):
    """One compiled function of a self-test."""

    device: Short
    status: Short
    kind: Short | None = None


class SelfTest(Record):
    """The JSON line of docker/selftest.py."""

    ok: bool
    backend: BackendName
    device_checked: bool = Field(description="false where only the compilers were tried")
    missing: Short | None = Field(None, description="the reason code of the piece that is not there")
    message: Text | None = None
    hint: Text | None = None
    torch: Short | None = None
    triton: Short | None = None
    cxx: Short | None = None
    cells: tuple[SelfTestCell, ...] = Field((), max_length=64)
