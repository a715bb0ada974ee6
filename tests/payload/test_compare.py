"""The verdict over several results: the worst one counts, whatever comes after it."""

from __future__ import annotations

import pytest

import probe_payload

torch = pytest.importorskip("torch", reason="needs torch: make test installs it")

pytestmark = pytest.mark.torch


def tensor(*values: float) -> object:
    return torch.tensor(values)


def test_a_later_larger_difference_does_not_hide_a_wrong_one() -> None:
    found = probe_payload.compare((tensor(0.0), tensor(1e6)), (tensor(0.1), tensor(1e6 + 50)))
    assert found["verdict"] == "wrong"
    assert found["message"].startswith("off by 0.1")
    assert found["max_abs"] == pytest.approx(50)


def test_a_shape_that_differs_is_wrong_whatever_follows() -> None:
    found = probe_payload.compare((torch.zeros(3), tensor(1e6)), (torch.zeros(4), tensor(1e6 + 50)))
    assert found["verdict"] == "wrong"
    assert "(3,)" in found["message"]


def test_close_and_equal() -> None:
    assert probe_payload.compare((tensor(1.0),), (tensor(1.0),))["verdict"] == "equal"
    found = probe_payload.compare((tensor(1.0),), (tensor(1.0 + 1e-5),))
    assert (found["verdict"], found["rtol"]) == ("close", 1e-4)
    assert probe_payload.compare((tensor(float("nan")),), (tensor(float("nan")),))["verdict"] != "wrong"


def test_another_device_is_wrong() -> None:
    found = probe_payload.compare((torch.zeros(2, device="meta"),), (torch.zeros(2),))
    assert (found["verdict"], "meta" in found["message"]) == ("wrong", True)


def test_values_that_are_no_tensors() -> None:
    assert probe_payload.compare((3, "a"), (3, "a"))["verdict"] == "equal"
    assert probe_payload.compare((3, "a"), (3, "b"))["verdict"] == "wrong"
    assert probe_payload.compare((3,), (3, 4))["verdict"] == "wrong"
