"""What a build and a self-test are given.  Pure: the same in, the same out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import probe_payload
from harness.errors import UsageError
from harness.records.images import BuildOptions, ImageSpec

SELFTEST = "/opt/inductor-atlas/selftest.py"
# A file system in memory that code can be mapped from; an engine's own default forbids that.
_TMPFS = "/tmp:rw,exec,nosuid,nodev,size=4g,mode=1777"  # noqa: S108  a path inside the container

# What a person may pass on to a build; everything else is a slip of the keyboard.
ARGUMENTS = (
    "BASE", "TORCH_VERSION", "TORCH_INDEX", "APT_MIRROR",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_CERT", "PIP_NO_INDEX",
    "PIP_DEFAULT_TIMEOUT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
_SHARED_FILES = (
    "docker/toolchain.sh", "docker/torch.sh", "docker/selftest.py", "docker/wheels/README", "docker/certs/README",
    "probe_payload.py",
)  # fmt: skip


def context_files(project: Path, spec: ImageSpec) -> dict[str, bytes]:
    """What every build of this image copies, by path in the context; no wheels and no certificates."""
    names = (f"docker/{spec.backend}.Dockerfile", *_SHARED_FILES)
    try:
        return {name: (project / name).read_bytes() for name in names}
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}", hint="run this from a clone") from None


def revision(files: Mapping[str, bytes]) -> str:
    """One hash over names and contents: which sources an image was built from, whatever git says."""
    digest = sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{sha256(files[name]).hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def build_arguments(spec: ImageSpec, options: BuildOptions, files: Mapping[str, bytes], source: str) -> dict[str, str]:
    """Every build argument; what the site says goes before what the catalogue says.

    Raises UsageError for a name that no Dockerfile knows.
    """
    for name in options.arguments:
        if name not in ARGUMENTS:
            raise UsageError(f"{name!r} is no build argument", hint=f"there are {', '.join(ARGUMENTS)}")
    chosen = {"BASE": spec.pinned_base, "TORCH_VERSION": spec.torch, "TORCH_INDEX": spec.index, **options.arguments}
    return {
        **chosen,
        "TORCH_BUILD": chosen["TORCH_INDEX"].rstrip("/").rpartition("/")[2],
        "ATLAS_VERSION": str(probe_payload.VERSION),
        "SOURCE": source,
        "REVISION": revision(files),
    }


def build_argv(
    engine: Sequence[str], spec: ImageSpec, folder: str, arguments: Mapping[str, str], options: BuildOptions
) -> tuple[str, ...]:
    """The build of one image from the context in `folder`."""
    words = [*engine, "build", "--file", f"{folder}/docker/{spec.backend}.Dockerfile", "--tag", spec.reference]
    if options.network != "default":
        words += ["--network", options.network]
    if options.no_cache:
        words.append("--no-cache")
    for name, value in arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    return (*words, folder)


def selftest_argv(
    engine: Sequence[str], reference: str, name: str, *, flags: Sequence[str] = (), with_device: bool = False
) -> tuple[str, ...]:
    """The self-test of one image, held as tightly as a probe is; `flags` give it its device."""
    return (
        *engine, "run", "--rm", "--pull", "never", "--name", name, "--label", "inductor-atlas.selftest=1",
        "--network", "none", "--read-only", "--tmpfs", _TMPFS,
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", *flags,
        "--entrypoint", "python", reference, SELFTEST, *(["--device"] if with_device else []),
    )  # fmt: skip
