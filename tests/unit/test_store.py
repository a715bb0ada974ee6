"""The run folder: whole files or none, readable after any ending, closed to hostile names."""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

import probe_payload
from harness import store
from harness.errors import StoreError
from harness.records import Host, Job, Outcome, Target
from harness.store import Run
from tests import sample_report, stand_ins

JOBS = [Job(host=Host(name=name, groups=("lab",), timeout=90), target=Target()) for name in ("one", "two")]


def new_run(root: Path) -> Run:
    return store.create(root, JOBS, ("atlas", "probe", "--all"))


def outcome(host: str, status: str = "answered") -> Outcome:
    return Outcome.model_validate({"host": host, "target": "native", "status": status, "ended": store.now()})


# ------------------------------------------------------------------ one file


def test_a_write_replaces_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    store.write_atomic(path, b"first, and longer")
    store.write_atomic(path, b"second")
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [child.name for child in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store.write_atomic(path, b"kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # what a full disk does, without one
    try:
        with pytest.raises(StoreError, match="cannot be written: File too large") as caught:
            store.write_atomic(path, b"lost" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.hint == f"df -h {tmp_path}"
    assert path.read_bytes() == b"kept"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file in the place of the folder")
    with pytest.raises(StoreError, match=r"cannot be written: (Not a directory|File exists)"):
        new_run(tmp_path / "reports")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=128k", "small-disk", str(disk)]
    if shutil.which("mount") is None or subprocess.run(argv, capture_output=True).returncode:
        pytest.skip("only root, on Linux, can mount a small disk: sudo make test")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_keeps_what_was_there(small_disk: Path) -> None:
    run = new_run(small_disk)
    run.save_result("one", "native", stand_ins.result())
    run.save_outcome(outcome("one"))
    (small_disk / "filler").write_bytes(b"x" * 40_000)
    with pytest.raises(StoreError, match="No space left on device"):
        run.save_result("two", "native", b"y" * 128 * 1024)
    run.log("a line that finds no room costs nothing else")
    again = store.open_run(small_disk).results()
    assert again["one/native"][0].status == "answered"
    assert again["one/native"][1] is not None
    assert again["two/native"] == (again["two/native"][0], None)
    assert not list(small_disk.rglob(".*.jsonl.*")), "the beginning of a file was left"


# ------------------------------------------------------------------ a run


def test_a_new_run_is_complete_before_anything_is_probed(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    manifest = store.open_run(tmp_path, run.id).manifest()
    assert manifest.command == ("atlas", "probe", "--all")
    assert [(job.host, job.target, job.groups, job.timeout) for job in manifest.jobs] == [
        ("one", "native", ("lab",), 90.0),
        ("two", "native", ("lab",), 90.0),
    ]
    assert manifest.schema_version == probe_payload.SCHEMA_VERSION


def test_the_manifest_holds_no_keys_and_no_addresses(tmp_path: Path) -> None:
    host = Host(name="one", key="~/.ssh/private", address="10.0.0.7", user="someone")
    run = store.create(tmp_path, [Job(host=host, target=Target())], ())
    text = (run.folder / "run.json").read_text()
    assert not [word for word in ("private", "10.0.0.7", "someone") if word in text]


def test_what_came_back_is_stored_byte_for_byte(tmp_path: Path) -> None:
    run, data = new_run(tmp_path), stand_ins.result()
    run.save_result("one", "native", data)
    run.save_outcome(outcome("one"))
    assert (run.folder / "hosts/one/native.jsonl").read_bytes() == data
    how, result = run.results()["one/native"]
    assert how.status == "answered"
    assert result is not None and [cell.function for cell in result.cells] == ["matmul"]


def test_a_killed_run_is_readable(tmp_path: Path) -> None:
    """No outcome was written; one result came in, half of its last line."""
    run = new_run(tmp_path)
    run.save_result("one", "native", stand_ins.result()[:-20])
    results = store.open_run(tmp_path).results()
    how, result = results["one/native"]
    assert (how.status, how.reason) == ("partial", "harness_stopped")
    assert result is not None and len(result.cells) == 1 and result.end is None
    how, result = results["two/native"]
    assert (how.status, how.reason, result) == ("not_run", "harness_stopped", None)


def test_a_killed_run_with_no_cell_did_not_run(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.save_result("one", "native", stand_ins.result().splitlines(keepends=True)[0])
    how, result = run.results()["one/native"]
    assert (how.status, how.reason) == ("not_run", "harness_stopped")
    assert result is not None and result.run is not None


def test_a_stored_result_that_is_not_whole_did_not_answer(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.save_result("one", "native", stand_ins.result().replace(b'"cells": 1', b'"cells": 2'))
    run.save_outcome(outcome("one"))
    how, _ = run.results()["one/native"]
    assert (how.status, how.reason) == ("partial", "incomplete")
    assert how.message == "a part of the result cannot be used: the end record counts 2 cells; 1 came"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"host": "two", "target": "native", "status": "answered"}'])
def test_an_outcome_that_is_broken_costs_its_row_only(tmp_path: Path, text: str) -> None:
    run = new_run(tmp_path)
    for host in ("one", "two"):
        run.save_result(host, "native", stand_ins.result())
        run.save_outcome(outcome(host))
    (run.folder / "hosts/one/native.outcome.json").write_text(text)
    results = run.results()
    how, result = results["one/native"]
    assert (how.host, how.status, how.reason) == ("one", "partial", "outcome")
    assert (how.message or "").startswith("how this target ended cannot be read: native.outcome.json: ")
    assert result is not None
    assert results["two/native"][0].status == "answered"


def test_files_that_cannot_be_read_cost_their_row_only(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.save_outcome(outcome("one"))
    (run.folder / "hosts/one/native.jsonl").mkdir()
    (run.folder / "hosts/two/native.outcome.json").mkdir(parents=True)
    results = run.results()
    assert "Is a directory" in (results["one/native"][0].message or "")
    assert (results["two/native"][0].status, results["two/native"][0].reason) == ("failed", "outcome")


def test_a_result_that_is_none_says_so_in_its_row(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.save_result("one", "native", b"<html>a captive portal</html>")
    run.save_outcome(outcome("one"))
    how, result = run.results()["one/native"]
    assert (how.status, how.reason, result) == ("failed", "result", None)
    assert "not a result" in (how.message or "")


def test_latest_points_to_the_newest(tmp_path: Path) -> None:
    for _ in range(2):
        run = new_run(tmp_path)
        assert (tmp_path / "latest").readlink() == Path("runs", run.id)
        assert store.open_run(tmp_path).id == run.id
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "runs"]


def test_reports_of_a_run(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    report, _ = sample_report.sample()
    run.save_report(report, {"report.md": "größer\n", "report.html": "<p>"})
    assert json.loads((run.folder / "report.json").read_bytes())["run"] == report.run
    assert (run.folder / "report.md").read_text(encoding="utf-8") == "größer\n"


def test_the_log_has_a_line_with_its_time_for_each(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.log("one/native connecting")
    run.log("one/native answered")
    lines = (run.folder / "log.txt").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["one/native connecting", "one/native answered"]
    assert all(line.partition(" ")[0].endswith("+00:00") for line in lines)


# ------------------------------------------------------------------ which run


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    for run_id in ("20260101-120000-aaaa", "20260102-130000-bbbb"):
        (tmp_path / "runs" / run_id).mkdir(parents=True)
    (tmp_path / "runs" / "notes").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("word", "run_id"),
    [
        ("20260101-120000-aaaa", "20260101-120000-aaaa"),
        ("20260102", "20260102-130000-bbbb"),
        ("latest", "20260102-130000-bbbb"),
    ],
)
def test_a_run_by_its_beginning(two_runs: Path, word: str, run_id: str) -> None:
    assert store.open_run(two_runs, word).id == run_id


@pytest.mark.parametrize("word", ["2025", "notes", "../runs/20260101-120000-aaaa", "/", "Latest"])
def test_no_such_run(two_runs: Path, word: str) -> None:
    with pytest.raises(StoreError, match="is not a run in") as caught:
        store.open_run(two_runs, word)
    assert "20260101-120000-aaaa, 20260102-130000-bbbb" in caught.value.message
    assert "notes" not in caught.value.message.partition("newest there:")[2]


def test_a_beginning_that_two_runs_share(two_runs: Path) -> None:
    with pytest.raises(StoreError, match="could be 20260101-120000-aaaa, 20260102-130000-bbbb"):
        store.open_run(two_runs, "202601")


def test_no_run_yet(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="none yet") as caught:
        store.open_run(tmp_path)
    assert caught.value.hint == "make probe HOST=localhost"


def test_latest_that_points_elsewhere_is_not_followed(two_runs: Path, tmp_path: Path) -> None:
    (two_runs / "latest").symlink_to("/etc")
    assert store.open_run(two_runs).id == "20260102-130000-bbbb"


def test_latest_in_a_copy_without_links(two_runs: Path) -> None:
    """A folder that was unpacked on Windows may hold a directory in the link's place."""
    (two_runs / "latest").mkdir()
    with pytest.raises(StoreError, match="latest: cannot become a link: Is a directory") as caught:
        store.create(two_runs, JOBS, ())
    assert caught.value.hint == f"mv {two_runs}/latest {two_runs}/latest.old"
    assert not list(two_runs.glob(".latest*"))


# ------------------------------------------------------------------ other versions


def change(run: Run, **fields: object) -> None:
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("version", ["2.0", "17.3", "x"])
def test_a_newer_major_is_refused_in_a_sentence(tmp_path: Path, version: str) -> None:
    run = new_run(tmp_path)
    change(run, schema_version=version)
    with pytest.raises(StoreError, match=rf"written by a newer inductor-atlas \(schema {version}\); update this one"):
        store.open_run(tmp_path).results()


def test_a_newer_minor_is_read(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    change(run, schema_version="1.99", what_came_later=[1, 2])
    assert len(store.open_run(tmp_path).results()) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    run = new_run(tmp_path)
    (run.folder / "run.json").write_text(text)
    with pytest.raises(StoreError, match="not a run"):
        run.manifest()


def test_a_manifest_that_is_gone(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (run.folder / "run.json").unlink()
    with pytest.raises(StoreError, match="No such file"):
        run.manifest()


# ------------------------------------------------------------------ codes


def test_a_code_is_stored_once_under_the_hash_that_is_computed_here(tmp_path: Path) -> None:
    lied = "0" * 64
    new_run(tmp_path).save_codes({lied: "import torch\n", "1" * 64: "import torch\n"})
    (path,) = (tmp_path / "objects").iterdir()
    assert path.name == f"{sha256(b'import torch' + bytes([10])).hexdigest()}.gz"
    assert gzip.decompress(path.read_bytes()) == b"import torch\n"
    first = path.stat().st_mtime_ns, path.read_bytes()
    new_run(tmp_path).save_codes({lied: "import torch\n"})
    assert (path.stat().st_mtime_ns, path.read_bytes()) == first


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/b", "..", ".", "", "-rf", "a\0b", "a\nb", "x" * 64, "Ä"])
def test_a_name_that_could_be_a_path_is_no_name(name: str) -> None:
    with pytest.raises(ValidationError):
        outcome(name)
    with pytest.raises(ValidationError):
        Host(name=name)
    with pytest.raises(ValidationError):
        Target(name=name)


def test_what_a_host_calls_itself_is_not_its_name(tmp_path: Path) -> None:
    """Nothing in a result takes part in a path."""
    run = new_run(tmp_path)
    lines = [json.loads(line) for line in stand_ins.result().splitlines()]
    for line in lines:
        line.update(host="../../../../outside", target="../outside", name="../outside")
    run.save_result("one", "native", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    _, result = run.results()["one/native"]
    assert result is not None
    run.save_codes(result.artifacts)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert not [name for name in files if "outside" in name]
    assert not (tmp_path.parent / "outside").exists()
