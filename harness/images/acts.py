"""Find, build, verify and push images, wherever the transport leads."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from harness.errors import Blocked, CommandFailed, DeadlineExceeded, UsageError, WireError
from harness.images import recipe
from harness.images.catalog import PROJECT
from harness.images.remote import ACT_TIMEOUT, failure, private_folder, run_logged
from harness.records.images import BuildOptions, ImageFacts, ImageSpec, SelfTest
from harness.runtimes import facts, replies
from harness.runtimes.faults import build_image
from harness.transports.base import Completed, Transport

BUILD_TIMEOUT = 3600.0
PUSH_TIMEOUT = 3600.0
SELFTEST_TIMEOUT = 1000.0  # docker/selftest.py ends itself before

_COPY_WHEELS = 'cp -l -- "$1"/*.whl "$2"/ 2>/dev/null || cp -- "$1"/*.whl "$2"/'
_ABSENT = re.compile(r"no such (image|object)|image not known|failed to find image", re.IGNORECASE)


class _Config(replies.ImageConfig):
    user: str | None = None


class _Image(replies.Image):
    """What `image inspect` tells beyond what a run needs."""

    config: _Config | None = None
    created: str | None = None
    size: int | None = None


def find(transport: Transport, engine: Sequence[str], reference: str) -> ImageFacts | None:
    """The image as the engine has it, None if it has none of that name; raises Blocked or CommandFailed."""
    done = transport.run((*engine, "image", "inspect", reference), timeout=ACT_TIMEOUT)
    if done.exit_code != 0:
        if _ABSENT.search(done.stderr.decode("utf-8", "replace")):
            return None
        raise failure(done, f"{engine[0]} cannot be asked for {reference}")
    try:
        return read_inspect(done.stdout, reference)
    except (WireError, ValidationError) as error:
        raise CommandFailed(f"`{engine[0]} image inspect {reference}`: {error}", reason="engine_failed") from error


def read_inspect(text: bytes, reference: str) -> ImageFacts:
    """What `image inspect` printed, as docker and as podman write it; raises WireError or ValidationError."""
    state = facts.parse_image(text)
    told = replies.read_list(_Image, text)[0]
    identity = state.id or told.id
    # A digest under localhost/ is the engine's own bookkeeping: nobody could pull it.  An image that was
    # pushed to several registries has one for each.
    digests = [digest for digest in told.repo_digests or () if not digest.startswith("localhost/")]
    repository = reference.partition("@")[0].rpartition(":")[0]
    digests.sort(key=lambda digest: not digest.startswith(f"{repository}@"))
    return ImageFacts(
        reference=reference,
        id=identity if ":" in identity else f"sha256:{identity}",  # podman leaves the algorithm out
        repo_digest=digests[0] if digests else None,
        architecture=state.architecture,
        system=state.system,
        labels=state.labels,
        created=told.created,
        user=(told.config.user if told.config else None) or None,
        size_bytes=told.size,
    )


def survey(
    transport: Transport, engine: Sequence[str], images: Sequence[ImageSpec]
) -> tuple[tuple[ImageSpec, ImageFacts | None], ...]:
    """Each image and what the engine has of it."""
    return tuple((spec, find(transport, engine, spec.reference)) for spec in images)


def build(
    transport: Transport,
    engine: Sequence[str],
    spec: ImageSpec,
    options: BuildOptions | None = None,
    *,
    source: str,
    project: Path = PROJECT,
    timeout: float = BUILD_TIMEOUT,
) -> ImageFacts:
    """Build one image where the transport leads: the context travels there and is removed afterwards.

    `source` becomes a label.  Raises UsageError for options that make no sense, Blocked with what to do
    where a piece cannot be had, CommandFailed, DeadlineExceeded after `timeout` seconds.
    """
    options = options or BuildOptions()
    files = recipe.context_files(project, spec)
    arguments = recipe.build_arguments(spec, options, files, source)
    with private_folder(transport, options.workdir) as folder:
        context = f"{folder}/context"
        _put_context(transport, context, files, options)
        argv = recipe.build_argv(engine, spec, context, arguments, options)
        run_logged(transport, argv, folder, timeout, f"the image {spec.name} was not built")
    return _present(transport, engine, spec.reference)


def _put_context(transport: Transport, folder: str, files: Mapping[str, bytes], options: BuildOptions) -> None:
    """Everything that the build copies, readable by all: the image's files keep these modes."""
    made = transport.run(("mkdir", "-p", f"{folder}/docker/wheels", f"{folder}/docker/certs"), timeout=ACT_TIMEOUT)
    if made.exit_code != 0:
        raise failure(made, "the build context could not be made")
    for name, data in files.items():
        transport.put(data, f"{folder}/{name}", mode=0o644)
    for kind, suffix, paths in (("wheels", "whl", options.wheels), ("certs", "crt", options.certificates)):
        for path in map(Path, paths):
            if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._+-]*\.{suffix}", path.name) or not path.is_file():
                raise UsageError(f"{path} is no file called NAME.{suffix}")
            transport.put(path.read_bytes(), f"{folder}/docker/{kind}/{path.name}", mode=0o644)
    if options.host_wheels:
        argv = ("/bin/sh", "-c", _COPY_WHEELS, "atlas", options.host_wheels, f"{folder}/docker/wheels")
        copied = transport.run(argv, timeout=ACT_TIMEOUT)
        if copied.exit_code != 0:
            raise failure(copied, f"{options.host_wheels} on the host gave no wheels")


def check(transport: Transport, engine: Sequence[str], reference: str) -> ImageFacts:
    """The image, which is there and is for this machine; raises Blocked (image_absent, image_arch)."""
    found = find(transport, engine, reference)
    if found is None:
        raise Blocked(f"{engine[0]} has no image {reference}", reason="image_absent", hint=build_image(None))
    machine = transport.run(("uname", "-m"), timeout=ACT_TIMEOUT).stdout.decode("ascii", "replace").strip()
    here = facts.architecture(machine)
    if found.architecture and here and found.architecture != here:
        raise Blocked(f"{reference} is for {found.architecture}, this machine is {here}", reason="image_arch",
                      hint=f"build it there: {build_image(None)}")  # fmt: skip
    return found


def verify(
    transport: Transport,
    engine: Sequence[str],
    reference: str,
    *,
    flags: Sequence[str] = (),
    with_device: bool = False,
    timeout: float = SELFTEST_TIMEOUT,
) -> SelfTest:
    """Run an image's self-test: one C++ kernel and, `with_device`, one kernel on its device.

    `flags` are the runtime's words that give the container its device.  Raises Blocked, with the
    missing piece as its reason, for an image that cannot compile, is absent or is for another machine.
    """
    check(transport, engine, reference)
    name = f"inductor-atlas-selftest-{secrets.token_hex(6)}"
    argv = recipe.selftest_argv(engine, reference, name, flags=flags, with_device=with_device)
    try:
        done = transport.run(argv, timeout=timeout)
    except DeadlineExceeded:
        raise DeadlineExceeded(f"{reference}: its self-test did not end within {timeout:g} s") from None
    finally:
        # Gone by itself after a good end; after any other nobody else would remove it.
        transport.run((*engine, "rm", "--force", name), timeout=ACT_TIMEOUT)
    answer = read_selftest(done, reference)
    if not answer.ok:
        missing = answer.missing or "selftest"
        raise Blocked(f"{reference} is refused, {missing}: {answer.message}", reason=missing, hint=answer.hint)
    return answer


def read_selftest(done: Completed, reference: str) -> SelfTest:
    """The self-test's JSON line; raises Blocked or CommandFailed for a container that wrote none."""
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith("{"):
            try:
                return SelfTest.model_validate_json(line)
            except ValidationError:
                break
    said = done.stderr.decode("utf-8", "replace")
    if recipe.SELFTEST in said:
        raise Blocked(f"{reference} has no self-test: it was not built from docker/", reason="no_selftest",
                      hint=build_image(None))  # fmt: skip
    if done.exit_code in (126, 127) and "python" in said:
        raise Blocked(f"{reference} has no python on its PATH", reason="no_python", hint=build_image(None))
    raise failure(done, f"the self-test of {reference} gave no answer")


def push(
    transport: Transport, engine: Sequence[str], spec: ImageSpec, registry: str, *, timeout: float = PUSH_TIMEOUT
) -> ImageFacts:
    """Push an image to `registry` (as registry.example.org/team); its facts then hold the repo digest."""
    if not re.fullmatch(r"[a-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*/?", registry):
        raise UsageError(f"{registry!r} is no registry", hint="write it as registry.example.org/team")
    target = f"{registry.rstrip('/')}/{spec.reference.rpartition('/')[2]}"
    with private_folder(transport) as folder:
        for argv in ((*engine, "tag", spec.reference, target), (*engine, "push", target)):
            run_logged(transport, argv, folder, timeout, f"{target} was not pushed")
    return _present(transport, engine, target)


def _present(transport: Transport, engine: Sequence[str], reference: str) -> ImageFacts:
    found = find(transport, engine, reference)
    if found is None:
        raise CommandFailed(f"{engine[0]} reported success and does not have {reference}", reason="engine_failed")
    return found
