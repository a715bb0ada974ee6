"""The launcher's half on the host: starts a command detached, and later polls, cancels and cleans it.

Standard library only, Python 3.9+; it lies beside probe_payload.py in a private directory and takes
the killing of process trees from it.  Nothing here reads a shell string: what to start stands in
job.json.  Each act prints one line, MARK and JSON, so that a login banner cannot corrupt it.

    keeper.py start DIR          start job.json's argv in a session of its own; print its handle
    keeper.py poll DIR OFFSET    state, progress text from OFFSET on, size and hash of the result
    keeper.py cancel DIR         end it, gently, then not; print what would not die
    keeper.py clean DIR          remove the directory, unless its command is alive
    keeper.py sweep ROOT HOURS   remove directories left behind: command dead, keep time over

Files in DIR: job.json (put there), handle.json, progress.log, stderr.log, exit.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import probe_payload

MARK = "ATLAS-KEEPER "
GRACE = 10.0  # seconds between asking and killing: the payload writes its last record
RESULT = "result.jsonl"
PROGRESS_CHUNK = 32 * 1024
PROC = Path("/proc/self")  # where there is none, `ps` is asked


def say(**fields: object) -> None:
    """One line for the control machine."""
    sys.stdout.write(f"{MARK}{json.dumps(fields, ensure_ascii=True)}\n")
    sys.stdout.flush()


def start(folder: Path) -> None:
    """Start detached and print the handle; returns when the handle is written."""
    ready, mine = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            keep(folder, mine)
        os._exit(0)
    os.close(mine)
    select.select([ready], [], [], 30)
    handle = probe_payload.read_json(folder / "handle.json")
    if handle is None:
        say(error="the command could not be started", detail=probe_payload.tail(folder / "stderr.log"))
    else:
        say(**handle)


def keep(folder: Path, ready: int) -> None:
    """Be the command's parent until it and all its descendants are gone.  Never returns."""
    code = 1
    try:
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        files = [
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for name in ("progress.log", "stderr.log")
        ]
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (files[0], 1), (files[1], 2)):
            os.dup2(source, target)
        probe_payload.adopt_orphans()
        asked: list[str] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: asked.append("cancelled"))
        probe_payload.write_json(folder / "handle.json", {
            "pid": os.getpid(), "started": started(os.getpid()), "payload_sha256": probe_payload.own_sha256(),
        })  # fmt: skip
        os.write(ready, b"1")
        os.close(ready)
        probe_payload.write_json(folder / "exit.json", _run(folder, job, asked))
        code = 0
    except BaseException:
        traceback.print_exc()  # os._exit would swallow it; by now it goes to stderr.log
    finally:
        os._exit(code)


def _run(folder: Path, job: dict[str, Any], asked: list[str]) -> dict[str, Any]:
    """Run job's argv under its deadline; how it ended.

    The command has the session's own environment, in which this host's torch works; of two values the
    job's wins.  What of it changes a result the payload records or clears.
    """
    me, kills = os.getpid(), probe_payload.oom_kills()
    try:
        process = subprocess.Popen(
            job["argv"], cwd=folder, env={**os.environ, **job["environment"]}, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=lambda: probe_payload.die_with_parent(me),
        )  # fmt: skip
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()  # os._exit would not
        return {"code": 127, "reason": "not_started", "survivors": [], "oom_kills": None}
    end, reason = time.monotonic() + job["deadline"], None
    below: dict[int, str | None] = {}
    while process.poll() is None:
        if reason is None and (asked or time.monotonic() > end):
            reason = asked[0] if asked else "deadline"
            # Where orphans are not adopted (macOS), whose they are can be seen only now.
            below = {pid: started(pid) for pid in probe_payload.descendants(os.getpid())}
            process.send_signal(signal.SIGTERM)
            end = time.monotonic() + GRACE
        elif reason is not None and time.monotonic() > end:
            process.kill()
        time.sleep(0.05)
    for pid, word in below.items():
        if word is not None and started(pid) == word:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    left = probe_payload.kill_descendants(os.getpid(), groups=(process.pid,))
    return {"code": process.returncode, "reason": reason, "survivors": left, "oom_kills": _killed_since(kills)}


def _killed_since(before: int | None) -> int | None:
    """How many processes the kernel has killed for memory here since it had killed `before`."""
    now = probe_payload.oom_kills()
    return None if before is None or now is None else max(0, now - before)


def started(pid: int) -> str | None:
    """A word that differs for another process with the same pid; None if there is no such process."""
    try:
        if PROC.is_dir():
            fields = (PROC.parent / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return None if fields[0] == "Z" else fields[19]
        state, _, start = probe_payload.run_program("ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)).partition(" ")
        return None if state.startswith("Z") else start.strip() or None
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def alive(folder: Path) -> bool:
    """True while the keeper of this directory runs."""
    handle = probe_payload.read_json(folder / "handle.json")
    return handle is not None and handle["started"] is not None and started(handle["pid"]) == handle["started"]


def poll(folder: Path, offset: int) -> None:
    """State: running, ended (exit.json says how) or lost (killed from outside, with its keeper)."""
    running = alive(folder)
    ended = probe_payload.read_json(folder / "exit.json")
    state = "ended" if ended is not None else "running" if running else "lost"
    result, text = folder / RESULT, b""
    with contextlib.suppress(OSError), (folder / "progress.log").open("rb") as file:
        file.seek(offset)
        text = file.read(PROGRESS_CHUNK)
    size, sha256 = 0, None
    if state != "running" and result.exists():
        data = result.read_bytes()
        size, sha256 = len(data), hashlib.sha256(data).hexdigest()
    say(state=state, exit=ended, offset=offset + len(text), progress=text.decode("utf-8", "replace"),
        result_bytes=size, result_sha256=sha256, stderr=probe_payload.tail(folder / "stderr.log", 2000))  # fmt: skip


def cancel(folder: Path) -> None:
    """End the command of a directory and say what would not die."""
    say(left=end(folder))


def end(folder: Path) -> list[int]:
    """Ask, wait, kill; then look whether anything is left: the pids that would not die."""
    handle = probe_payload.read_json(folder / "handle.json")
    if handle and alive(folder):
        with contextlib.suppress(OSError):
            os.kill(handle["pid"], signal.SIGTERM)
        last = time.monotonic() + GRACE + 10
        while alive(folder) and time.monotonic() < last:
            time.sleep(0.05)
        if alive(folder):
            probe_payload.kill_descendants(handle["pid"])
            with contextlib.suppress(OSError):
                os.kill(handle["pid"], signal.SIGKILL)
    return _end_ours(folder)


def _end_ours(folder: Path) -> list[int]:
    """Kill what outlived its keeper (killed from outside, it could not); the pids that would not die."""
    end = time.monotonic() + GRACE
    while (left := _ours(folder)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return left


def _ours(folder: Path) -> list[int]:
    """Pids of processes that still carry this directory in their environment (Linux) or command line."""
    if PROC.is_dir():
        found, word = [], os.fsencode(f"ATLAS_RUN_DIRECTORY={folder}\0")
        for process in PROC.parent.glob("[1-9]*"):
            with contextlib.suppress(OSError):
                if word in (process / "environ").read_bytes() + b"\0":
                    found.append(int(process.name))
        return found
    listing = probe_payload.run_program("ps", "-axwwo", "pid=,command=")  # ww: BSD's cuts lines at 79 columns
    lines = [line.split(None, 1) for line in listing.splitlines() if str(folder) in line]
    return [int(pid) for pid, command in lines if int(pid) != os.getpid() and " cancel " not in command]


def clean(folder: Path) -> None:
    """Remove the directory of a command that ended, and the root if it was the last one there."""
    end = time.monotonic() + GRACE
    while alive(folder):
        if not (folder / "exit.json").exists() or time.monotonic() > end:  # else the keeper is just leaving
            say(removed=False, why="its command is alive")
            return
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    say(removed=not folder.exists(), why="" if not folder.exists() else "files would not go")


def sweep(root: Path, hours: float) -> None:
    """Remove what earlier runs left: only directories of ours, dead, and older than the keep time."""
    removed = 0
    for folder in sorted(root.glob("run-*")):
        if _abandoned(folder, hours) and not alive(folder) and not _ours(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed += not folder.exists()
    say(removed=removed)


def _abandoned(folder: Path, hours: float) -> bool:
    """True for a directory of this user, no link, where nothing was written for `hours`."""
    try:
        facts = folder.lstat()
        result = folder / RESULT
        changed = max(facts.st_mtime, result.lstat().st_mtime if result.exists() else 0.0)
    except OSError:  # another run has just removed it
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and time.time() - changed > hours * 3600


def main(arguments: list[str]) -> None:
    """Dispatch one act."""
    act, path = arguments[0], Path(arguments[1])
    if act == "poll":
        poll(path, int(arguments[2]))
    elif act == "sweep":
        sweep(path, float(arguments[2]))
    else:
        {"start": start, "cancel": cancel, "clean": clean}[act](path)


if __name__ == "__main__":
    main(sys.argv[1:])
