"""What a person sees while a run goes on: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import threading

from rich.console import Console

from harness.events import Event
from harness.progress import Progress, Screen, describe
from harness.records import Outcome

JOBS = ("good/native", "down/native")


def outcome(host: str, status: str, **fields: object) -> Outcome:
    return Outcome.model_validate({"host": host, "target": "native", "status": status, **fields})


EVENTS = (
    Event("good/native", "queued"),
    Event("down/native", "queued"),
    Event("good/native", "connecting"),
    Event("down/native", "connecting"),
    Event("good/native", "sending"),
    Event("good/native", "running"),
    Event("down/native", "ended", "nothing listens", outcome("down", "unreachable", reason="unreachable")),
    Event("good/native", "cell", "cell cpu matmul extern_only"),
    Event("good/native", "retrying", "connection lost, attempt 1 of 3"),
    Event("good/native", "cell", "cell cpu softmax generated"),
    Event("good/native", "fetching"),
    Event("good/native", "ended", "", outcome("good", "answered")),
)


def shown(*events: Event, terminal: bool = False, width: int = 120) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, color_system=None)
    with Progress(JOBS, console) as progress:
        for event in events:
            progress(event)
        if progress.live is not None:
            progress.live.refresh()
    return out.getvalue()


def test_a_plain_line_for_each_piece_of_news() -> None:
    assert shown(*EVENTS).splitlines() == [
        "good/native connecting",
        "down/native connecting",
        "down/native unreachable (unreachable) nothing listens",
        "good/native cell cpu matmul extern_only",
        "good/native retrying connection lost, attempt 1 of 3",
        "good/native cell cpu softmax generated",
        "good/native answered",
    ]


def test_plain_lines_carry_no_colours_and_are_not_wrapped() -> None:
    text = shown(Event("good/native", "cell", "cell " + "x" * 300), width=40)
    assert text == f"good/native cell {'x' * 300}\n"


def test_plain_text_is_no_markup() -> None:
    assert shown(Event("good/native", "cell", "cell [bold]name[/bold]")) == "good/native cell [bold]name[/bold]\n"


def test_the_table_on_a_terminal() -> None:
    text = shown(*EVENTS, terminal=True)
    lines = [line.split() for line in text.replace("\x1b[?25l", "").splitlines()]
    assert ["host", "state", "cells", "seconds", "what"] in [line[-5:] for line in lines]
    good = next(line for line in lines if line[:2] == ["good/native", "answered"])
    assert good[2] == "2", "two cells"
    assert next(line for line in lines if line[:2] == ["down/native", "unreachable"])[-2:] == ["nothing", "listens"]


def test_the_table_goes_when_the_run_ends() -> None:
    """What stays on the terminal is the report alone: the last act erases each line of the table."""
    text = shown(*EVENTS, terminal=True)
    assert text.count("\x1b[2K") >= 3


def test_a_terminal_gets_no_plain_lines() -> None:
    assert "cpu matmul" not in shown(EVENTS[7], EVENTS[9], terminal=True).replace("cell cpu matmul", "")
    assert "good/native cell cpu matmul extern_only" not in shown(*EVENTS, terminal=True)


def test_a_hosts_text_cannot_write_on_the_terminal() -> None:
    evil = Event("good/native", "cell", "cell cpu \x1b[2J\x1b]0;owned\x07 \u202e")
    assert describe(evil) == "good/native cell cpu \u241b[2J\u241b]0;owned\u2407 \u27e8U+202E\u27e9"
    for terminal in (False, True):
        assert "\x1b[2J" not in shown(evil, terminal=terminal)
        assert "\x1b]0" not in shown(evil, terminal=terminal)


def test_a_hosts_text_stays_on_its_line() -> None:
    evil = Event("good/native", "ended", "first\ndown/native answered", outcome("good", "failed"))
    assert shown(evil) == "good/native failed first\u240adown/native answered\n"


def test_a_pipe_that_nobody_reads_silences_the_display_and_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "w") as pipe:  # it tells once more as it closes
        screen = Screen(file=pipe)
        with Progress(JOBS, screen) as progress:
            for event in EVENTS:
                progress(event)
        assert screen.quiet
    assert progress.rows["good/native"].cells == 2


def test_events_may_come_from_many_threads() -> None:
    out = io.StringIO()
    progress = Progress(JOBS, Console(file=out, width=200))
    cell = Event("good/native", "cell", "cell cpu matmul extern_only")
    threads = [threading.Thread(target=lambda: [progress(cell) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert progress.rows["good/native"].cells == 400
    assert set(out.getvalue().splitlines()) == {"good/native cell cpu matmul extern_only"}
