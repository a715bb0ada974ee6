"""A containerised target from hosts.yaml to the report: here, and over SSH to a host that has only an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.fleet import Fleet, find_sshd
from harness.records.images import ImageFacts, ImageSpec
from harness.records.view import Report
from tests.containers.engine import Engine

pytestmark = pytest.mark.timeout(1200)  # the image is built at first

Probe = Callable[..., tuple[int, Report]]


@pytest.fixture
def probe(docker_engine: Engine, cpu_image: ImageFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """`atlas probe` with a hosts.yaml of these hosts: exit code and the report that it wrote."""
    for name, value in docker_engine.environment.items():
        monkeypatch.setenv(name, value)

    def run(hosts: dict[str, Any], *words: str) -> tuple[int, Report]:
        inventory = tmp_path / "hosts.yaml"
        inventory.write_text(json.dumps({"hosts": hosts}))
        reports = tmp_path / "reports"
        code = cli.main(["probe", *words, "--hosts", str(inventory), "--reports", str(reports)])
        return code, Report.model_validate_json((reports / "latest" / "report.json").read_text())

    return run


def target(**fields: object) -> dict[str, object]:
    return {"runtime": "docker", "backend": "cpu", **fields}


def test_the_container_gives_the_kinds_that_the_host_gives(probe: Probe, tmp_path: Path) -> None:
    here = {"transport": "local", "workdir": str(tmp_path), "targets": {"native": {}, "docker": target(enabled=False)}}
    code, report = probe({"here": here}, "here/native", "here/docker")
    assert code == 0
    kinds = {(cell.target, cell.cell.function): cell.cell.kind for cell in report.cells}
    functions = {function for _, function in kinds}
    assert functions == {"matmul", "pointwise", "softmax"}
    assert all(kinds["native", name] == kinds["docker", name] for name in functions)
    native, docker = report.targets
    assert native.outcome.container is None
    facts = docker.outcome.container
    assert facts is not None
    assert facts.engine == "docker" and facts.image_id and facts.repo_digest is None
    assert {"--network", "none", "--read-only", "--cap-drop"} <= set(facts.flags)
    assert not list(tmp_path.glob("inductor-atlas-*"))
    page = (tmp_path / "reports/latest/report.html").read_text()
    assert facts.image_id in page and "no registry gave this image" in page


@pytest.mark.parametrize(
    ("fields", "reason", "word"),
    [
        ({"image": "localhost/inductor-atlas-cpu:0.0.1"}, "image_absent", "atlas images build"),
        ({"backend": "cuda", "image": "the cpu image"}, "device_missing", None),
    ],
)
def test_what_cannot_run_is_an_honest_row(
    probe: Probe, cpu_spec: ImageSpec, tmp_path: Path, fields: dict[str, object], reason: str, word: str | None
) -> None:
    fields = {**fields, **({"image": cpu_spec.reference} if fields.get("image") == "the cpu image" else {})}
    here = {"transport": "local", "workdir": str(tmp_path), "targets": {"docker": target(**fields)}}
    code, report = probe({"here": here}, "here")
    (one,) = report.targets
    assert (one.outcome.status, code) == ("blocked", 3)
    assert one.outcome.reason == reason or (reason == "device_missing" and one.outcome.reason is not None)
    assert word is None or word in (one.outcome.hint or "")
    assert not report.cells, "no CPU result stands under another name"


@pytest.mark.skipif(find_sshd() is None, reason="sshd is not installed: make system-deps")
def test_over_ssh_to_a_host_that_has_only_an_engine(probe: Probe, docker_engine: Engine, tmp_path: Path) -> None:
    work = tmp_path / "there"
    work.mkdir()
    with Fleet(tmp_path / "lab") as lab:
        host = lab.add("box", set_env=docker_engine.environment, workdir=str(work), python="/nonexistent/python")
        entry = host.model_dump(mode="json", exclude={"name", "targets"}, exclude_defaults=True)
        words = ("box", "--function", "pointwise", "--ssh-config", str(lab.ssh_config))
        code, report = probe({"box": {**entry, "targets": {"docker": target()}}}, *words)
    assert code == 0, report.targets[0].outcome
    (cell,) = report.cells
    assert (cell.cell.status, cell.cell.kind) == ("generated", "cpp")
    assert list(work.iterdir()) == []
