"""What holds for every test: a skip says what would enable it, and on CI such a skip is a failure.

A test skips with a reason that ends in the command that enables it, e.g. "sshd is not installed: make
system-deps".  With ATLAS_NO_SKIP=1 (set by .ci/run, which has run that command) every skip fails,
but for those that nothing on the machine can enable: their reasons begin with a word of EXCUSED.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# What no command can bring to a machine: hardware and another system.
EXCUSED = ("needs a GPU", "needs macOS", "needs an accelerator")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn an inexcusable skip into a failure that says what was skipped."""
    if os.environ.get("ATLAS_NO_SKIP") != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return
    where = report.longrepr
    reason = str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")
    if not reason.startswith(EXCUSED):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be (ATLAS_NO_SKIP=1): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
