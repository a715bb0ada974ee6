"""Runs of the real payload with the real torch; each is made once and looked at by many small tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.payload.runs import HERE, LAB, LIMIT, Run, run_payload


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.torch)
            item.add_marker(pytest.mark.timeout(LIMIT))
            if importlib.util.find_spec("torch") is None:
                item.add_marker(pytest.mark.skip(reason="torch is not installed: make test installs it"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("payload")


@pytest.fixture(scope="session")
def hazards(folder: Path) -> Run:
    """Every function of hazards.py, in an environment that would spoil them all."""
    return run_payload(
        folder / "hazards", "--functions", str(HERE / "hazards.py"), "--timeout", "20", "--cell-megabytes", "32",
        "--jobs", "2", environment=LAB,
    )  # fmt: skip


@pytest.fixture(scope="session")
def plain(folder: Path) -> Run:
    """The three functions, as the harness runs them."""
    return run_payload(folder / "plain")


@pytest.fixture(scope="session")
def spawned(folder: Path) -> Run:
    return run_payload(folder / "spawned", "--isolation", "spawn")


@pytest.fixture(scope="session")
def printed(folder: Path) -> Run:
    """The three functions, as a person runs them."""
    return run_payload(folder / "printed", out=False)
