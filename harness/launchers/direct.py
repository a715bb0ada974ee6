"""Start a command detached on a host, through any transport, and pick it up again by its handle.

The host's half is keeper.py.  The channel only tails: the command runs on if the connection drops,
and stops by its own deadline if nobody comes back.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from harness.errors import Blocked, CommandFailed
from harness.launchers import keeper
from harness.transports.base import Completed, Transport

KEEP_HOURS = 24.0  # how long a directory that was left behind may be asked for
ACT_TIMEOUT = 60.0  # seconds for one short act
CANCEL_TIMEOUT = 60.0

# Fixed texts: what differs from host to host is an argument, never part of them.
#
# Makes the private directory, unless this python is too old to act in it.  A run that ends at the
# same time may take the empty root away in between.
_MAKE = f"""
import json, os, stat, sys, tempfile
def make():
    root = os.path.join(os.path.expanduser(sys.argv[1]) or tempfile.gettempdir(), "inductor-atlas-%d" % os.getuid())
    for attempt in range(9):
        os.makedirs(root, 0o700, exist_ok=True)
        facts = os.lstat(root)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            sys.exit("%s is not a private directory of this user" % root)
        try:
            folder = tempfile.mkdtemp(prefix="run-", dir=root)
        except FileNotFoundError:
            continue
        os.mkdir(os.path.join(folder, "work"), 0o700)
        return dict(root=root, folder=folder)
    sys.exit("%s disappears again and again" % root)
place = make() if sys.version_info >= (3, 9) else {{}}
print({keeper.MARK!r} + json.dumps(dict(place, python="%d.%d" % sys.version_info[:2], home=os.path.expanduser("~"))))
"""

# The hash of each file as it arrived.
_HASH = f"""
import hashlib, json, sys
print({keeper.MARK!r} + json.dumps([hashlib.sha256(open(path, "rb").read()).hexdigest() for path in sys.argv[1:]]))
"""

# Removes a directory in which nothing was started, so that no keeper need be there.
_DISCARD = f"""
import json, os, shutil, sys
shutil.rmtree(sys.argv[1], ignore_errors=True)
try:
    os.rmdir(os.path.dirname(sys.argv[1]))
except OSError:
    pass
print({keeper.MARK!r} + json.dumps(dict(removed=not os.path.exists(sys.argv[1]), why="files would not go")))
"""

# Starts a python below the home directory of whoever logs in.
_IN_HOME = 'exec "$HOME/$0" "$@"'


@dataclass(frozen=True)
class Place:
    """A private directory on a host and the python that acts in it."""

    root: str
    folder: str
    python: str
    python_version: str

    @property
    def result(self) -> str:
        """Path of the JSON Lines file."""
        return f"{self.folder}/{keeper.RESULT}"


@dataclass(frozen=True)
class State:
    """What a poll says.  `lost`: the command and its keeper were killed from outside."""

    state: Literal["running", "ended", "lost"]
    offset: int
    progress: str
    result_bytes: int
    result_sha256: str | None
    exit_code: int | None
    exit_reason: str | None
    survivors: tuple[int, ...]
    stderr: str


def prepare(transport: Transport, python: str, root: str | None) -> Place:
    """Make a private directory on the host; `root` is where (its temporary directory if None).

    Raises Blocked where there is no usable python or no room.
    """
    below_home = python.removeprefix("~/")
    start = (python,) if below_home == python else ("/bin/sh", "-c", _IN_HOME, below_home)
    done = transport.run((*start, "-c", _MAKE, root or ""), timeout=ACT_TIMEOUT)
    if done.exit_code in (126, 127):
        raise Blocked(
            f"there is no {python} on this host",
            reason="no_python",
            hint="set `python:` to its full path in hosts.yaml",
        )
    reply = _reply(done)
    version = str(reply["python"])
    if tuple(map(int, version.split("."))) < (3, 9):
        raise Blocked(f"{python} is Python {version}, the payload needs 3.9", reason="python_too_old",
                      hint="set `python:` to a newer one in hosts.yaml")  # fmt: skip
    if below_home != python:
        python = f"{reply['home']}/{below_home}"
    return Place(str(reply["root"]), str(reply["folder"]), python, version)


def push(transport: Transport, place: Place, payload: Path) -> str:
    """Put payload and keeper into the directory; returns the payload's sha256, the same here and there.

    Raises CommandFailed where a file arrived changed; nothing of it has run by then.
    """
    files = {
        f"{place.folder}/probe_payload.py": payload.read_bytes(),
        f"{place.folder}/keeper.py": Path(keeper.__file__).read_bytes(),
    }
    for path, data in files.items():
        transport.put(data, path, mode=0o600)
    sent = [sha256(data).hexdigest() for data in files.values()]
    arrived = _reply(transport.run((place.python, "-c", _HASH, *files), timeout=ACT_TIMEOUT))
    for path, here, there in zip(files, sent, arrived, strict=True):
        if here != there:
            raise CommandFailed(
                f"{path} arrived changed: its sha256 on the host is not the one that was sent", reason="hash"
            )
    return sent[0]


def start(
    transport: Transport, place: Place, argv: tuple[str, ...], environment: dict[str, str], deadline: float
) -> None:
    """Start argv detached, with a deadline in seconds; raises CommandFailed where it does not start."""
    variables = {**environment, "TMPDIR": f"{place.folder}/work", "ATLAS_RUN_DIRECTORY": place.folder}
    job = json.dumps({"argv": argv, "environment": variables, "deadline": deadline})
    transport.put(job.encode(), f"{place.folder}/job.json", mode=0o600)
    _act(transport, place, "sweep", place.root, str(KEEP_HOURS))
    reply = _act(transport, place, "start", place.folder)
    if "error" in reply:
        raise CommandFailed(f"{reply['error']}: {reply.get('detail', '')}", reason="start")


def poll(transport: Transport, place: Place, offset: int) -> State:
    """What the command is doing; `offset` is where the last poll's progress ended."""
    reply = _act(transport, place, "poll", place.folder, str(offset))
    ended = reply.get("exit") or {}
    return State(
        state=reply["state"], offset=int(reply["offset"]), progress=str(reply["progress"]),
        result_bytes=int(reply["result_bytes"]), result_sha256=reply.get("result_sha256"),
        exit_code=ended.get("code"), exit_reason=ended.get("reason"), survivors=tuple(ended.get("survivors") or ()),
        stderr=str(reply.get("stderr", "")),
    )  # fmt: skip


def cancel(transport: Transport, place: Place) -> tuple[int, ...]:
    """End the command and everything that it started; returns the pids that would not die."""
    return tuple(_act(transport, place, "cancel", place.folder, timeout=CANCEL_TIMEOUT)["left"])


def clean(transport: Transport, place: Place) -> str | None:
    """Remove the directory; returns why it could not be, or None."""
    return _removed(place, _act(transport, place, "clean", place.folder))


def discard(transport: Transport, place: Place) -> str | None:
    """Remove a directory in which nothing was started; returns why it could not be, or None."""
    return _removed(place, _reply(transport.run((place.python, "-c", _DISCARD, place.folder), timeout=ACT_TIMEOUT)))


def _removed(place: Place, reply: dict[str, Any]) -> str | None:
    return None if reply.get("removed") else f"{place.folder}: {reply.get('why')}"


def _act(transport: Transport, place: Place, act: str, *words: str, timeout: float = ACT_TIMEOUT) -> dict[str, Any]:
    argv = (place.python, "-B", f"{place.folder}/keeper.py", act, *words)
    reply: dict[str, Any] = _reply(transport.run(argv, timeout=timeout))
    return reply


def _reply(done: Completed) -> Any:
    """The keeper's line out of whatever else was printed; raises CommandFailed or Blocked without one."""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(keeper.MARK):
            with contextlib.suppress(ValueError):
                return json.loads(line[len(keeper.MARK) :])
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:300]
    command = " ".join(word if len(word) < 80 else "..." for word in done.argv)
    if done.exit_code == 0:
        raise Blocked(f"`{command}` printed no reply: a login shell or forced command answers in its place",
                      reason="no_reply", hint=f"try: ssh HOST {done.argv[0]} --version")  # fmt: skip
    raise CommandFailed(f"`{command}` ended with {done.exit_code}: {last}", reason="command_failed")
