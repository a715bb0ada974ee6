"""hosts x targets -> jobs, and why something is skipped."""

from __future__ import annotations

import pytest

from harness.plan import jobs, plan
from harness.records import Host, Selection, Target

CPU = Target(name="cpu-only", backends=("cpu",))
GPU = Target(name="gpu", backends=("cuda", "cpu"))
ANY = Target()


def host(*targets: Target) -> Host:
    return Host(name="box", targets=targets)


def devices_of(target: Target, *wanted: str) -> tuple[str, ...] | None:
    """The devices that a job of this target is given; None if it is skipped."""
    (entry,) = plan([host(target)], Selection(devices=wanted))
    return None if entry.job is None else entry.job.selection.devices


def test_one_entry_a_target_in_the_order_of_the_file() -> None:
    entries = plan([host(GPU, CPU), Host(name="alone")], Selection())
    assert [(entry.host, entry.target) for entry in entries] == [
        ("box", "gpu"),
        ("box", "cpu-only"),
        ("alone", "native"),
    ]
    assert [job.id for job in jobs(entries)] == ["box/gpu", "box/cpu-only", "alone/native"]


@pytest.mark.parametrize(
    ("target", "wanted", "devices"),
    [
        (ANY, (), ()),  # all that are found
        (ANY, ("cuda:1",), ("cuda:1",)),
        (GPU, (), ("cuda", "cpu")),  # what hosts.yaml has it look for
        (GPU, ("cpu",), ("cpu",)),
        (GPU, ("cuda:1", "mps"), ("cuda:1",)),
        (GPU, ("cuda:0", "cuda:1", "cpu"), ("cuda:0", "cuda:1", "cpu")),
        (CPU, ("cuda",), None),
        (CPU, ("cuda:0", "xpu"), None),
    ],
)
def test_devices(target: Target, wanted: tuple[str, ...], devices: tuple[str, ...] | None) -> None:
    assert devices_of(target, *wanted) == devices


def test_a_skip_says_what_was_asked_and_what_there_is() -> None:
    (entry,) = plan([host(CPU)], Selection(devices=("cuda", "xpu:1")))
    assert entry.skip == "hosts.yaml has it look for cpu; --device asks for cuda, xpu:1"
    assert jobs([entry]) == ()


def test_the_rest_of_the_selection_is_kept() -> None:
    selection = Selection(devices=("cuda",), functions=("matmul",), cell_timeout=12.5, jobs=3)
    (entry,) = plan([host(GPU)], selection)
    assert entry.job is not None
    assert entry.job.selection == selection


def test_one_host_that_is_skipped_costs_no_other() -> None:
    entries = plan([host(CPU, GPU)], Selection(devices=("cuda",)))
    assert [entry.skip is None for entry in entries] == [False, True]
    assert [job.id for job in jobs(entries)] == ["box/gpu"]
