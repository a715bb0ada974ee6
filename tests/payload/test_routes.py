"""The ways to one generated text: they agree, each can be forced, and each stands in for the one before it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probe_payload import FUNCTIONS, ROUTES
from tests.payload.runs import HERE, LIMIT


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tmp = tmp_path_factory.mktemp("routes")
    environment = {**os.environ, "TMPDIR": str(tmp), "TORCHINDUCTOR_CACHE_DIR": str(tmp / "inductor")}
    done = subprocess.run(
        [sys.executable, str(HERE / "routes_child.py")],
        env=environment, cwd=Path(HERE).parents[1], capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_routes_give_the_same_text(told: Any, function: str) -> None:
    texts = [told["three"][f"{function} {route}"]["codes"] for route in (None, *ROUTES)]
    assert len(texts[0]) == 1 and texts[0][0]
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_call_tells_whether_they_agree(told: Any, function: str) -> None:
    kept = told["three"][f"{function} None"]
    assert kept["route"] == "run_and_get_code"
    assert {name: (route["codes"], route["agrees"]) for name, route in kept["routes"].items()} == {
        "run_and_get_code": (1, True),
        "output_code_log": (1, True),
        "structured_trace": (1, True),
    }


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_can_be_forced(told: Any, function: str, route: str) -> None:
    assert told["three"][f"{function} {route}"]["route"] == route


@pytest.mark.parametrize(
    ("label", "route", "errors"),
    [
        ("first missing", "run_and_get_triton_code", {"run_and_get_code": "AttributeError"}),
        ("first raises", "run_and_get_triton_code", {"run_and_get_code": "moved elsewhere"}),
        # The call was made: making it again would compile again, and the listeners heard it.
        ("first raises late", "output_code_log", {"run_and_get_code": "got 3"}),
        (
            "both raise",
            "output_code_log",
            {"run_and_get_code": "moved elsewhere", "run_and_get_triton_code": "moved elsewhere"},
        ),
    ],
)
def test_the_next_route_takes_over(told: Any, label: str, route: str, errors: dict[str, str]) -> None:
    kept = told["broken"][label]
    assert kept["route"] == route
    assert len(kept["codes"]) == 1 and "extern_kernels.mm(" in kept["codes"][0]
    assert kept["error"] is None and kept["called"]
    kept_errors = {name: item["error"] for name, item in kept["routes"].items() if item["error"]}
    assert set(kept_errors) == set(errors)
    assert all(word in kept_errors[name] for name, word in errors.items())


def test_all_graphs_are_kept(told: Any) -> None:
    kept = told["graphs"]["None"]
    assert len(kept["codes"]) == 3
    assert "aten.sort" in kept["codes"][2]
    for route in ("run_and_get_code", "output_code_log", "structured_trace"):
        assert told["graphs"][route]["codes"] == kept["codes"], route


def test_the_helper_that_loses_graphs_is_told_so(told: Any) -> None:
    kept = told["graphs"]["run_and_get_triton_code"]
    assert kept["codes"] == [] and kept["route"] is None
    assert "got 3" in kept["routes"]["run_and_get_triton_code"]["error"]
    assert kept["routes"]["output_code_log"]["codes"] == 3


def test_no_graph_is_no_error(told: Any) -> None:
    kept = told["graphs"]["none"]
    assert (kept["codes"], kept["route"], kept["error"]) == ([], None, None)


def test_a_build_that_fails_keeps_the_text(told: Any) -> None:
    kept = told["failing"]
    assert kept["error"] is not None
    assert kept["route"] == "output_code_log"
    assert "async_compile.cpp_pybinding(" in kept["codes"][0]
    assert kept["routes"]["run_and_get_code"]["error"] == "the compiled call raised"


def test_loggers_are_left_as_they_were(told: Any) -> None:
    assert told["quiet"] is True
