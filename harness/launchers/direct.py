"""Start a command detached on a host, through any transport, and pick it up again by its handle.

The host's half is keeper.py.  The channel only tails: the command runs on if the connection drops,
and stops by its own deadline if nobody comes back.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from harness.errors import Blocked, CommandFailed
from harness.launchers import keeper
from harness.launchers.base import Place, State
from harness.records.base import Record
from harness.records.keeper import (
    KeeperExit,
    KeeperHashes,
    KeeperLeft,
    KeeperPlace,
    KeeperPoll,
    KeeperRemoved,
    KeeperStarted,
    KeeperSwept,
)
from harness.transports.base import Completed, Transport

Reply = TypeVar("Reply", bound=Record)

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
hashes = [hashlib.sha256(open(path, "rb").read()).hexdigest() for path in sys.argv[1:]]
print({keeper.MARK!r} + json.dumps(dict(hashes=hashes)))
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
    reply = _reply(done, KeeperPlace)
    version = reply.python
    if tuple(map(int, version.split("."))) < (3, 9):
        raise Blocked(f"{python} is Python {version}, the payload needs 3.9", reason="python_too_old",
                      hint="set `python:` to a newer one in hosts.yaml")  # fmt: skip
    if reply.root is None or reply.folder is None:
        raise CommandFailed("the host did not say where its directory is", reason="command_failed")
    if below_home != python:
        python = f"{reply.home}/{below_home}"
    return Place(reply.root, reply.folder, python, version)


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
    done = transport.run((place.python, "-c", _HASH, *files), timeout=ACT_TIMEOUT)
    arrived = dict(zip(files, _reply(done, KeeperHashes).hashes, strict=False))
    for path, here in zip(files, sent, strict=True):
        if arrived.get(path) != here:
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
    _act(transport, place, KeeperSwept, "sweep", place.root, str(KEEP_HOURS))
    reply = _act(transport, place, KeeperStarted, "start", place.folder)
    if reply.error is not None:
        raise CommandFailed(f"{reply.error}: {reply.detail}", reason="start")


def poll(transport: Transport, place: Place, offset: int) -> State:
    """What the command is doing; `offset` is where the last poll's progress ended.

    Raises CommandFailed where the host claims to be at another place of its progress than it can be.
    """
    reply = _act(transport, place, KeeperPoll, "poll", place.folder, str(offset))
    if not offset <= reply.offset <= offset + keeper.PROGRESS_CHUNK:
        raise CommandFailed(f"asked for its progress from byte {offset} on, the host says that it is at {reply.offset}",
                            reason="command_failed")  # fmt: skip
    ended = reply.exit or KeeperExit()
    return State(
        state=reply.state, offset=reply.offset, progress=reply.progress, result_bytes=reply.result_bytes,
        result_sha256=reply.result_sha256, exit_code=ended.code, exit_reason=ended.reason, survivors=ended.survivors,
        stderr=reply.stderr, oom_kills=ended.oom_kills,
    )  # fmt: skip


def cancel(transport: Transport, place: Place) -> tuple[int, ...]:
    """End the command and everything that it started; returns the pids that would not die."""
    return _act(transport, place, KeeperLeft, "cancel", place.folder, timeout=CANCEL_TIMEOUT).left


def clean(transport: Transport, place: Place) -> str | None:
    """Remove the directory; returns why it could not be, or None."""
    return _removed(place, _act(transport, place, KeeperRemoved, "clean", place.folder))


def discard(transport: Transport, place: Place) -> str | None:
    """Remove a directory in which nothing was started; returns why it could not be, or None."""
    done = transport.run((place.python, "-c", _DISCARD, place.folder), timeout=ACT_TIMEOUT)
    return _removed(place, _reply(done, KeeperRemoved))


def _removed(place: Place, reply: KeeperRemoved) -> str | None:
    return None if reply.removed else f"{place.folder}: {reply.why}"


def _act(
    transport: Transport, place: Place, reply: type[Reply], act: str, *words: str, timeout: float = ACT_TIMEOUT
) -> Reply:
    argv = (place.python, "-B", f"{place.folder}/keeper.py", act, *words)
    return _reply(transport.run(argv, timeout=timeout), reply)


def _reply(done: Completed, record: type[Reply]) -> Reply:
    """The keeper's line out of whatever else was printed; raises CommandFailed or Blocked without a right one."""
    command = " ".join(word if len(word) < 80 else "..." for word in done.argv)
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(keeper.MARK):
            try:
                return record.model_validate_json(line[len(keeper.MARK) :])
            except ValidationError as error:
                (fault, *_) = error.errors(include_url=False, include_input=False, include_context=False)
                if fault["type"] != "json_invalid":
                    where = ".".join(map(str, fault["loc"]))
                    raise CommandFailed(f"`{command}` gave a reply that is none: {where}: {fault['msg']}",
                                        reason="command_failed") from error  # fmt: skip
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:300]
    if done.exit_code == 0:
        raise Blocked(f"`{command}` printed no reply: a login shell or forced command answers in its place",
                      reason="no_reply", hint=f"try: ssh HOST {done.argv[0]} --version")  # fmt: skip
    raise CommandFailed(f"`{command}` ended with {done.exit_code}: {last}", reason="command_failed")
