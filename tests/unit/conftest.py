"""Golden texts: `pytest tests/unit --update-golden` writes them anew; look at the difference before you keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[1] / "data" / "reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden reports anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name."""

    def compare(name: str, text: str) -> None:
        path = REPORTS / name
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, (
            f"{name} differs; if that is meant: pytest tests/unit --update-golden"
        )

    return compare
