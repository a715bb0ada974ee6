"""The launcher and its keeper with real processes: detached, polled, ended, cleaned, swept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from harness.errors import Blocked, CommandFailed
from harness.launchers import direct, keeper
from harness.launchers.direct import Place, State
from harness.records.inventory import Host
from harness.transports import Transport
from harness.transports.local import LocalTransport

PAYLOAD = Path(keeper.probe_payload.__file__)

# A child that leaves the process group and the session, and whose pid is in a file.
TREE = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], start_new_session=True)
open(sys.argv[1], "w").write("%d %d" % (os.getpid(), child.pid))
print("cell started", flush=True)
time.sleep(600)
"""
# Leaves a child of its own session and of no environment, and ends.
ORPHAN = """
import subprocess, sys
argv = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
print(subprocess.Popen(argv, start_new_session=True, env={}, stdout=2).pid, flush=True)
"""
STUBBORN = """
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""
POLITE = """
import signal, sys, time
def leave(*_):
    print("asked to end", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a keeper that waits one second, not ten, between asking and killing."""
    text = Path(keeper.__file__).read_text(encoding="utf-8")
    assert text.count("\nGRACE = 10.0 ") == 1
    copy = tmp_path / "keeper.py"
    copy.write_text(text.replace("\nGRACE = 10.0 ", "\nGRACE = 1.0 "), encoding="utf-8")
    monkeypatch.setattr(keeper, "__file__", str(copy))


@pytest.fixture
def root(tmp_path: Path) -> str:
    folder = tmp_path / "root"
    folder.mkdir(mode=0o700)
    return str(folder)


@pytest.fixture
def place(transport: Transport, root: str) -> Iterator[Place]:
    place = direct.prepare(transport, sys.executable, root)
    direct.push(transport, place, PAYLOAD)
    yield place
    with contextlib.suppress(Exception):
        direct.cancel(transport, place)


def start(transport: Transport, place: Place, program: str, *words: str, deadline: float = 60.0) -> None:
    direct.start(transport, place, (sys.executable, "-u", "-c", program, *words), {}, deadline)


def until(transport: Transport, place: Place, done: Callable[[State], bool]) -> State:
    """Poll until it is so; the test's own limit ends what never is."""
    while True:
        state = direct.poll(transport, place, 0)
        if done(state):
            return state
        time.sleep(0.05)


def has_ended(state: State) -> bool:
    return state.state != "running"


def pids_in(path: Path) -> list[int]:
    while not path.exists() or len(path.read_text().split()) < 2:
        time.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


def runs(pid: int) -> bool:
    """A process that ended and was not yet collected by its parent does not run."""
    argv = ["/bin/ps", "-o", "stat=", "-p", str(pid)]
    said = subprocess.run(argv, capture_output=True, text=True).stdout.strip()
    return bool(said) and not said.startswith("Z")


def handle_pid(place: Place) -> int:
    pid: int = json.loads(Path(place.folder, "handle.json").read_text())["pid"]
    return pid


# ------------------------------------------------------------------ a command's life


def test_it_survives_the_act_that_started_it(transport: Transport, place: Place) -> None:
    start(transport, place, "import time; print('cell one'); time.sleep(600)")
    state = until(transport, place, lambda state: "cell one" in state.progress)
    assert state.state == "running"
    assert os.getsid(handle_pid(place)) != os.getsid(0)
    assert runs(handle_pid(place))


def test_progress_comes_in_pieces(transport: Transport, place: Place) -> None:
    program = "import sys; [print(line) for line in ('first', 'second \u00e9', 'third')]"
    start(transport, place, program)
    whole = until(transport, place, has_ended)
    assert whole.progress.splitlines() == ["first", "second \u00e9", "third"]
    assert whole.offset == len(whole.progress.encode())
    later = direct.poll(transport, place, 6)
    assert later.progress.splitlines() == ["second \u00e9", "third"]
    assert direct.poll(transport, place, whole.offset).progress == ""


def test_the_result_is_hashed_there(transport: Transport, place: Place) -> None:
    start(transport, place, "import sys; open(sys.argv[1], 'wb').write(b'{}\\n' * 1000)", place.result)
    state = until(transport, place, has_ended)
    data = transport.get(place.result, limit=10_000)
    assert (state.result_bytes, state.result_sha256) == (3000, sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; sys.exit(0)", 0),
        ("import sys; sys.exit(41)", 41),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
    ],
    ids=["0", "41", "SIGKILL", "SIGABRT"],
)
def test_how_it_ended(transport: Transport, place: Place, program: str, code: int) -> None:
    start(transport, place, program)
    state = until(transport, place, has_ended)
    assert (state.state, state.exit_code, state.exit_reason, state.survivors) == ("ended", code, None, ())


def test_its_last_words_are_kept(transport: Transport, place: Place) -> None:
    start(transport, place, "raise SystemExit('no room left')")
    state = until(transport, place, has_ended)
    assert state.stderr.strip() == "no room left"


def test_its_environment_names_its_directory(transport: Transport, place: Place) -> None:
    program = "import os; print(os.environ['ATLAS_RUN_DIRECTORY'], os.environ['TMPDIR'], os.getcwd(), os.environ['A'])"
    direct.start(transport, place, (sys.executable, "-c", program), {"A": "$(id) ;"}, 60.0)
    words = until(transport, place, has_ended).progress.strip().split(" ", 3)
    assert words == [place.folder, f"{place.folder}/work", place.folder, "$(id) ;"]


def test_a_program_that_is_not_there(transport: Transport, place: Place) -> None:
    direct.start(transport, place, ("/no/such/program",), {}, 60.0)
    state = until(transport, place, has_ended)
    assert (state.state, state.exit_code, state.exit_reason) == ("ended", 127, "not_started")
    assert "/no/such/program" in state.stderr


def test_a_job_file_that_is_broken(transport: Transport, place: Place) -> None:
    transport.put(b"{", f"{place.folder}/job.json", mode=0o600)
    done = transport.run((sys.executable, "-B", f"{place.folder}/keeper.py", "start", place.folder), timeout=60)
    assert b"the command could not be started" in done.stdout
    assert b"JSONDecodeError" in done.stderr


def test_kills_for_memory_are_those_since_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts since the cgroup was made: what was killed before is not this probe's."""
    job = {"argv": [sys.executable, "-c", "pass"], "environment": {}, "deadline": 60.0}
    for counts, said in (((7, 7), 0), ((7, 9), 2), ((None, None), None), ((None, 3), None), ((9, 1), 0)):
        monkeypatch.setattr(keeper.probe_payload, "oom_kills", iter(counts).__next__)
        monkeypatch.setattr(keeper.probe_payload, "kill_descendants", lambda *_, **__: [])
        assert keeper._run(tmp_path, job, [])["oom_kills"] == said


# ------------------------------------------------------------------ ending it


def test_the_deadline_ends_the_whole_tree(transport: Transport, place: Place, tmp_path: Path) -> None:
    start(transport, place, TREE, str(tmp_path / "pids"), deadline=1.0)
    pids = pids_in(tmp_path / "pids")
    assert os.getsid(pids[1]) == pids[1], "the grandchild has left the session"
    state = until(transport, place, has_ended)
    assert (state.state, state.exit_code, state.exit_reason, state.survivors) == ("ended", -15, "deadline", ())
    assert not [pid for pid in pids if runs(pid)]


def test_cancel_asks_first(transport: Transport, place: Place) -> None:
    start(transport, place, POLITE)
    until(transport, place, lambda state: "ready" in state.progress)
    assert direct.cancel(transport, place) == ()
    state = direct.poll(transport, place, 0)
    assert (state.exit_code, state.exit_reason) == (3, "cancelled")
    assert "asked to end" in state.progress


def test_cancel_kills_what_does_not_listen(transport: Transport, place: Place) -> None:
    start(transport, place, STUBBORN)
    until(transport, place, lambda state: "ready" in state.progress)
    assert direct.cancel(transport, place) == ()
    state = direct.poll(transport, place, 0)
    assert (state.state, state.exit_code, state.exit_reason) == ("ended", -9, "cancelled")


def test_cancel_kills_what_lies_below(transport: Transport, place: Place, tmp_path: Path) -> None:
    start(transport, place, TREE, str(tmp_path / "pids"))
    pids = pids_in(tmp_path / "pids")
    assert direct.cancel(transport, place) == ()
    assert not [pid for pid in pids if runs(pid)]


def test_cancel_of_what_has_ended(transport: Transport, place: Place) -> None:
    start(transport, place, "print('done')")
    until(transport, place, has_ended)
    assert direct.cancel(transport, place) == ()
    assert direct.poll(transport, place, 0).exit_code == 0


def test_what_it_leaves_running_is_ended_too(transport: Transport, place: Place) -> None:
    """Linux's keeper adopts it; where there is no adoption, cancel finds it by its command line."""
    start(transport, place, ORPHAN, f"{place.folder}/work")
    orphan = int(until(transport, place, has_ended).progress)
    assert direct.cancel(transport, place) == ()
    assert not runs(orphan)


def test_killed_from_outside_is_lost(transport: Transport, place: Place) -> None:
    start(transport, place, "import os, time; print(os.getpid()); time.sleep(600)")
    child = int(until(transport, place, lambda state: state.progress.endswith("\n")).progress)
    for pid in (handle_pid(place), child):
        with contextlib.suppress(ProcessLookupError):  # Linux has killed the child with its keeper
            os.kill(pid, signal.SIGKILL)
    state = until(transport, place, has_ended)
    assert (state.state, state.exit_code) == ("lost", None)


def test_what_outlived_its_keeper_is_found_and_killed(transport: Transport, place: Place) -> None:
    """The child is killed with its keeper at most; the grandchild is nobody's and still ours."""
    pids = Path(place.folder, "pids")
    start(transport, place, TREE, str(pids))
    child, grandchild = pids_in(pids)
    for pid in (handle_pid(place), child):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(transport, place, has_ended)
    assert runs(grandchild)
    assert direct.cancel(transport, place) == ()
    assert not runs(grandchild)


# ------------------------------------------------------------------ leaving nothing


def test_clean_removes_everything_of_ours(transport: Transport, place: Place, root: str) -> None:
    start(transport, place, "open('work/file', 'w').write('x')")
    until(transport, place, has_ended)
    assert direct.clean(transport, place) is None
    assert list(Path(root).iterdir()) == []


def test_clean_leaves_another_runs_directory(transport: Transport, place: Place, root: str) -> None:
    other = direct.prepare(transport, sys.executable, root)
    assert direct.clean(transport, place) is None
    assert not Path(place.folder).exists()
    assert Path(other.folder).is_dir()


def test_clean_refuses_while_it_runs(transport: Transport, place: Place) -> None:
    start(transport, place, "import time; print('ready'); time.sleep(600)")
    until(transport, place, lambda state: "ready" in state.progress)
    assert direct.clean(transport, place) == f"{place.folder}: its command is alive"
    assert Path(place.folder, "job.json").exists()


def test_discard_needs_no_keeper(transport: Transport, root: str) -> None:
    place = direct.prepare(transport, sys.executable, root)
    assert direct.discard(transport, place) is None
    assert list(Path(root).iterdir()) == []


def age(folder: Path, hours: float) -> None:
    past = time.time() - hours * 3600
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (past, past), follow_symlinks=False)


def left_behind(transport: Transport, root: str) -> Path:
    return Path(direct.prepare(transport, sys.executable, root).folder)


def test_sweep_removes_what_is_old_and_dead(transport: Transport, place: Place, root: str) -> None:
    old, young = left_behind(transport, root), left_behind(transport, root)
    age(old, direct.KEEP_HOURS + 1)
    age(young, direct.KEEP_HOURS - 1)
    start(transport, place, "pass")
    assert not old.exists()
    assert young.is_dir()
    assert Path(place.folder).is_dir()


def test_sweep_looks_at_the_result_too(transport: Transport, place: Place, root: str) -> None:
    """A directory's own time stays while a file in it grows."""
    folder = left_behind(transport, root)
    (folder / keeper.RESULT).touch()
    age(folder, direct.KEEP_HOURS + 1)
    os.utime(folder / keeper.RESULT)
    start(transport, place, "pass")
    assert folder.is_dir()


def test_sweep_leaves_what_lives(transport: Transport, place: Place, root: str) -> None:
    """Also where nothing but the keeper tells: the command has cleared its environment."""
    program = "import os, sys; os.execve(sys.executable, [sys.executable, '-uc', sys.argv[1]], {})"
    start(transport, place, program, "import time; print('ready'); time.sleep(600)")
    until(transport, place, lambda state: "ready" in state.progress)
    age(Path(place.folder), direct.KEEP_HOURS + 1)
    other = direct.prepare(transport, sys.executable, root)
    direct.push(transport, other, PAYLOAD)
    start(transport, other, "pass")
    assert Path(place.folder, "handle.json").exists()
    assert direct.poll(transport, place, 0).state == "running"


def test_sweep_leaves_what_has_a_process_without_its_keeper(transport: Transport, place: Place, root: str) -> None:
    pids = Path(place.folder, "pids")
    start(transport, place, TREE, str(pids))
    child, grandchild = pids_in(pids)
    for pid in (handle_pid(place), child):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(transport, place, has_ended)
    age(Path(place.folder), direct.KEEP_HOURS + 1)
    other = direct.prepare(transport, sys.executable, root)
    direct.push(transport, other, PAYLOAD)
    start(transport, other, "pass")
    assert runs(grandchild)
    assert Path(place.folder).is_dir()


def test_sweep_leaves_links_and_others(transport: Transport, place: Place, root: str, tmp_path: Path) -> None:
    foreign = tmp_path / "somewhere"
    foreign.mkdir()
    (foreign / "precious").touch()
    age(foreign, 1000)
    link, plain = Path(place.root, "run-link"), Path(place.root, "run-file")
    link.symlink_to(foreign)
    plain.touch()
    unrelated = Path(place.root, "notes")
    unrelated.mkdir()
    for path in (link, plain, unrelated):
        os.utime(path, (0, 0), follow_symlinks=False)
    start(transport, place, "pass")
    assert (foreign / "precious").exists()
    assert link.is_symlink()
    assert plain.exists()
    assert unrelated.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user: run it as root")
def test_sweep_leaves_another_users_directory(transport: Transport, place: Place, root: str) -> None:
    folder = left_behind(transport, root)
    age(folder, direct.KEEP_HOURS + 1)
    os.chown(folder, 65534, 65534)
    start(transport, place, "pass")
    assert folder.is_dir()


# ------------------------------------------------------------------ a place to be


def private_root(root: str) -> Path:
    return Path(root, f"inductor-atlas-{os.getuid()}")


def test_the_directory_is_private(plain: Transport, root: str) -> None:
    place = direct.prepare(plain, sys.executable, root)
    assert Path(place.root) == private_root(root)
    for folder in (place.root, place.folder, f"{place.folder}/work"):
        assert Path(folder).stat().st_mode & 0o777 == 0o700
    direct.push(plain, place, PAYLOAD)
    for name in ("probe_payload.py", "keeper.py"):
        assert Path(place.folder, name).stat().st_mode & 0o777 == 0o600


def test_two_runs_do_not_share_a_directory(plain: Transport, root: str) -> None:
    one, two = (direct.prepare(plain, sys.executable, root) for _ in range(2))
    assert one.root == two.root
    assert one.folder != two.folder


def test_without_a_workdir_it_is_the_hosts_temporary_one(
    plain: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert Path(direct.prepare(plain, sys.executable, None).root) == private_root(str(tmp_path))


def test_a_workdir_below_home(plain: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Path(direct.prepare(plain, sys.executable, "~/new/atlas").root).parent == tmp_path / "new/atlas"


def test_a_root_that_is_a_link_is_refused(plain: Transport, root: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    private_root(root).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandFailed, match="is not a private directory of this user"):
        direct.prepare(plain, sys.executable, root)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701], ids=oct)
def test_a_root_that_others_can_enter_is_refused(plain: Transport, root: str, mode: int) -> None:
    private_root(root).mkdir()
    private_root(root).chmod(mode)
    with pytest.raises(CommandFailed, match="is not a private directory of this user"):
        direct.prepare(plain, sys.executable, root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user: run it as root")
def test_a_root_of_another_user_is_refused(plain: Transport, root: str) -> None:
    private_root(root).mkdir(mode=0o700)
    os.chown(private_root(root), 65534, 65534)
    with pytest.raises(CommandFailed, match="is not a private directory of this user"):
        direct.prepare(plain, sys.executable, root)


def test_a_root_that_vanishes_in_between_is_made_again(
    plain: Transport, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run cleans the empty root just before mkdtemp."""
    fake = tmp_path / "fake"
    fake.mkdir()
    program = (
        "import os, tempfile\nreal, calls = tempfile.mkdtemp, []\n"
        "def mkdtemp(**words):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 1: os.rmdir(words['dir'])\n"
        "    return real(**words)\n"
        "tempfile.mkdtemp = mkdtemp\n"
    )
    (fake / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(fake))
    assert Path(direct.prepare(plain, sys.executable, root).folder).is_dir()


# ------------------------------------------------------------------ hosts that are not ready


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o700)
    return str(path)


def test_no_python(plain: Transport, root: str) -> None:
    with pytest.raises(Blocked, match="there is no /no/such/python on this host") as caught:
        direct.prepare(plain, "/no/such/python", root)
    assert caught.value.reason == "no_python"
    assert "python:" in (caught.value.hint or "")


@pytest.mark.parametrize("version", ["3.8", "2.7"])
def test_a_python_that_is_too_old(plain: Transport, root: str, tmp_path: Path, version: str) -> None:
    """It is asked for its version before it makes anything, so that nothing stays there."""
    major, minor = version.split(".")
    program = f"import sys\nsys.version_info = ({major}, {minor}, 0)\nsys.argv.pop(0)\nexec(sys.argv.pop(1))\n"
    old = script(tmp_path / "old-python", f"#!{sys.executable}\n{program}")
    with pytest.raises(Blocked, match=f"is Python {version}, the payload needs 3.9") as caught:
        direct.prepare(plain, old, root)
    assert caught.value.reason == "python_too_old"
    assert list(Path(root).iterdir()) == []


OLD_PYTHONS = sorted(Path.home().glob(".pyenv/versions/[23].[0-8].*/bin/python"))


@pytest.mark.parametrize("python", OLD_PYTHONS or [None], ids=lambda path: path.parents[1].name if path else "none")
def test_a_real_python_that_is_too_old(plain: Transport, root: str, python: Path | None) -> None:
    if python is None:
        pytest.skip("no Python before 3.9 is installed: pyenv install 3.8")
    with pytest.raises(Blocked) as caught:
        direct.prepare(plain, str(python), root)
    assert caught.value.reason == "python_too_old"


def test_a_login_shell_that_answers_in_its_place(plain: Transport, root: str, tmp_path: Path) -> None:
    greeter = script(tmp_path / "greeter", "#!/bin/sh\necho 'This account is currently not available.'\n")
    with pytest.raises(Blocked, match="printed no reply") as caught:
        direct.prepare(plain, greeter, root)
    assert caught.value.reason == "no_reply"


def test_a_python_that_fails(plain: Transport, root: str, tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "#!/bin/sh\necho 'loading' >&2\necho 'libz.so.1: cannot open' >&2\nexit 4\n")
    with pytest.raises(CommandFailed, match=r"ended with 4: libz.so.1: cannot open"):
        direct.prepare(plain, broken, root)


def test_a_banner_does_not_matter(plain: Transport, root: str, tmp_path: Path) -> None:
    chatty = script(tmp_path / "chatty", f"#!/bin/sh\necho 'Welcome!'\nexec {sys.executable} \"$@\"\n")
    assert Path(direct.prepare(plain, chatty, root).folder).is_dir()


@pytest.mark.parametrize("folder", ["venv/bin", "with space; $(id)"])
def test_a_python_below_home(
    plain: Transport, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    python = script(tmp_path / folder / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    place = direct.prepare(plain, f"~/{folder}/python", root)
    assert place.python == python
    direct.push(plain, place, PAYLOAD)  # runs it by that path


def test_no_python_below_home(plain: Transport, root: str) -> None:
    with pytest.raises(Blocked, match="there is no ~/nowhere/python on this host"):
        direct.prepare(plain, "~/nowhere/python", root)


class Noisy(LocalTransport):
    """A line that changes one file's last byte on the way."""

    def __init__(self, name: str) -> None:
        super().__init__(Host(name="here", transport="local"))
        self._name = name

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        super().put(data[:-1] + b"#" if path.endswith(self._name) else data, path, mode=mode)


@pytest.mark.parametrize("name", ["probe_payload.py", "keeper.py"])
def test_a_file_that_changed_in_transit_never_runs(root: str, name: str) -> None:
    line = Noisy(name)
    line.open()
    place = direct.prepare(line, sys.executable, root)
    with pytest.raises(CommandFailed, match=f"{name} arrived changed") as caught:
        direct.push(line, place, PAYLOAD)
    assert caught.value.reason == "hash"
    assert not Path(place.folder, "__pycache__").exists()
    assert direct.discard(line, place) is None


def test_push_says_what_was_sent(plain: Transport, root: str) -> None:
    place = direct.prepare(plain, sys.executable, root)
    assert direct.push(plain, place, PAYLOAD) == sha256(PAYLOAD.read_bytes()).hexdigest()


@pytest.mark.parametrize("reply", ["ATLAS-KEEPER {", "ATLAS-KEEPER"], ids=["broken", "empty"])
def test_a_reply_that_is_no_json(plain: Transport, root: str, tmp_path: Path, reply: str) -> None:
    liar = script(tmp_path / "liar", f"#!/bin/sh\necho '{reply} '\n")
    with pytest.raises(Blocked, match="printed no reply"):
        direct.prepare(plain, liar, root)
