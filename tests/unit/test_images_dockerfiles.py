"""Rules that every Dockerfile keeps; the GPU ones are built on few machines, so they are read on all."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness import images
from harness.images import recipe
from harness.images.catalog import PROJECT

DOCKER = PROJECT / "docker"
BACKENDS = ("cpu", "cuda", "rocm", "xpu")


def steps(backend: str) -> list[tuple[str, str]]:
    """(instruction, rest) in order, comments gone and continued lines joined."""
    text = (DOCKER / f"{backend}.Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]


def last_stage(backend: str) -> list[tuple[str, str]]:
    found = steps(backend)
    return found[max(number for number, (word, _) in enumerate(found) if word == "FROM") :]


@pytest.mark.parametrize("backend", BACKENDS)
def test_needs_no_other_frontend_builder_or_network_file(backend: str) -> None:
    text = (DOCKER / f"{backend}.Dockerfile").read_text(encoding="utf-8")
    assert "syntax=" not in text  # fetched from a registry that may not be there
    assert "--mount" not in text  # a classic builder has none
    assert not [rest for word, rest in steps(backend) if word == "ADD"]
    assert not re.search(r"https?://", text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_base_comes_from_the_catalogue_alone(backend: str) -> None:
    first = [rest for word, rest in steps(backend) if word == "FROM"]
    assert first == ["${BASE} AS toolchain", "toolchain AS torch", "toolchain"]
    assert ("ARG", "BASE") in steps(backend)
    # A default would be a second place that pins, and a value in the history.
    assert not [rest for word, rest in steps(backend) if word == "ARG" and "=" in rest]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ends_as_a_user_that_is_not_root(backend: str) -> None:
    users = [rest for word, rest in last_stage(backend) if word == "USER"]
    assert users == ["10001:10001"]
    assert "useradd --uid 10001" in (DOCKER / "toolchain.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", BACKENDS)
def test_holds_no_secret(backend: str) -> None:
    named = [rest for word, rest in steps(backend) if word in ("ARG", "ENV", "LABEL")]
    assert not re.search(r"password|passwd|token|secret|api_?key", " ".join(named), re.IGNORECASE)
    # An index address may hold a password: it is known in the stage that is thrown away.
    kept = " ".join(rest for word, rest in last_stage(backend) if word in ("ARG", "ENV", "LABEL", "RUN"))
    assert "PIP_" not in kept
    assert "TORCH_INDEX" not in kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_installs_through_the_scripts_and_leaves_nothing_behind(backend: str) -> None:
    runs = [rest for word, rest in steps(backend) if word == "RUN"]
    assert len(runs) == 2
    assert runs[0].startswith("sh /opt/inductor-atlas/build/toolchain.sh")
    assert runs[1] == "sh /tmp/wheels/torch.sh"
    toolchain = (DOCKER / "toolchain.sh").read_text(encoding="utf-8")
    assert "--no-install-recommends" in toolchain
    assert "rm -rf /var/lib/apt/lists/*" in toolchain
    assert "--no-cache-dir" in (DOCKER / "torch.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_say_version_torch_and_source(backend: str) -> None:
    labels = next(rest for word, rest in last_stage(backend) if word == "LABEL")
    pairs = dict(re.findall(r'(\S+?)="([^"]*)"', labels))
    assert pairs["org.opencontainers.image.version"] == "${ATLAS_VERSION}"
    assert pairs["org.opencontainers.image.source"] == "${SOURCE}"
    assert pairs["org.opencontainers.image.revision"] == "${REVISION}"
    assert pairs["inductor-atlas.torch"] == "${TORCH_VERSION}"
    assert pairs["inductor-atlas.backend"] == backend
    given = {rest for word, rest in last_stage(backend) if word == "ARG"}
    assert set(re.findall(r"\$\{(\w+)\}", labels)) <= given


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_build_argument_is_one_that_a_person_may_give_or_that_we_set(backend: str) -> None:
    named = {rest for word, rest in steps(backend) if word == "ARG"}
    assert named <= {*recipe.ARGUMENTS, "TORCH_BUILD", "ATLAS_VERSION", "SOURCE", "REVISION"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_that_is_copied_is_in_the_context(backend: str) -> None:
    spec = next(spec for spec in images.load_catalog().images if spec.backend == backend)
    files = recipe.context_files(PROJECT, spec)
    for word, rest in steps(backend):
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert any(name == source or name.startswith(source) for name in files), source


def test_each_image_can_do_what_its_backend_needs() -> None:
    toolchain = (DOCKER / "toolchain.sh").read_text(encoding="utf-8")
    for need in ("gcc", "g++", "libc6-dev", "libgomp1", "openssl", "python3-dev"):
        assert need in toolchain
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in dict(last_stage("cuda"))["ENV"]
    driver = next(rest for word, rest in steps("xpu") if word == "RUN")
    assert {"libze1", "libze-dev", "libze-intel-gpu1"} <= set(driver.split())


@pytest.mark.parametrize("script", ["toolchain.sh", "torch.sh"])
def test_the_scripts_are_plain_shell(script: str) -> None:
    path: Path = DOCKER / script
    assert path.read_text(encoding="utf-8").splitlines()[0] == "#!/bin/sh"
    done = subprocess.run(["/bin/sh", "-n", str(path)], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_folders_for_a_site_are_empty_but_for_their_text() -> None:
    for folder in ("wheels", "certs"):
        ignored = (DOCKER / folder / ".gitignore").read_text(encoding="utf-8").split()
        assert ignored == ["*", "!.gitignore", "!README"]
