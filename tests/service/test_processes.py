"""However a process ends, those that it started end too, and its folder is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.service import processes
from reticent.service.processes import Child, Folder
from waiting import LIMIT

SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL]
FAILED = {signal.SIGTERM: 143, signal.SIGHUP: 143}

PARENT = """
import sys, threading
from reticent.service.processes import Child, Folder, ending_in_good_order

if __name__ == "__main__":
    with ending_in_good_order():
        kept = Folder("kept-")
        with kept as folder, Child(sys.argv[1], str(folder), folder=kept):
            threading.Event().wait()
"""
CHILD = """
import sys, threading
from pathlib import Path

(Path(sys.argv[1]) / "file").write_text("private")
print(sys.argv[1], flush=True)
threading.Event().wait()
"""
STUBBORN = """
import signal, sys, threading
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: (Path(sys.argv[1]) / "late").write_text("private"))
print(sys.argv[1], flush=True)
while True:
    threading.Event().wait(1)
"""
LEARNER = """
import multiprocessing, threading
from reticent.service.processes import end_with_parent

def learn():
    end_with_parent()
    print("learning", flush=True)
    threading.Event().wait()

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=learn, daemon=True).start()
    threading.Event().wait()
"""
DEMO = """
import sys
from reticent import cli
from reticent.cli import clinic_service

if __name__ == "__main__":
    clinic_service.ROWS = 3_000
    clinic_service.PRIVACY = ["--epsilon", "4", "--delta", "1e-6", "--yes"]
    sys.exit(cli.main(["demo"]))
"""


def start(folder: Path, text: str, *more: str) -> subprocess.Popen[str]:
    """A process to be signalled. All that it starts has its standard output, too: that ends when all have ended."""
    script = folder / "parent.py"
    script.write_text(text)
    (folder / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(folder / "temporary")}
    command = [sys.executable, str(script), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> int:
    """The exit code, when the process and all that it started have ended."""
    process.communicate(timeout=LIMIT)
    return process.returncode


@pytest.mark.parametrize("number", SIGNALS)
def test_a_child_and_a_folder_go_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    parent = start(tmp_path, PARENT, str(tmp_path / "child.py"))
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().strip())
    assert (folder / "file").exists()
    parent.send_signal(number)
    assert ended(parent) == FAILED.get(number, -number)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_without_the_pipe_a_child_would_go_on(tmp_path: Path) -> None:
    """The negative control: a parent that starts its child as others do, and is killed."""
    (tmp_path / "child.py").write_text(CHILD)
    text = "import subprocess, sys; subprocess.run([sys.executable, sys.argv[1], sys.argv[2]])"
    parent = start(tmp_path, text, str(tmp_path / "child.py"), str(tmp_path / "temporary"))
    assert parent.stdout is not None
    parent.stdout.readline()
    parent.kill()
    parent.wait(LIMIT)
    os.set_blocking(parent.stdout.fileno(), False)
    with pytest.raises(BlockingIOError):  # there is someone who might still write
        os.read(parent.stdout.fileno(), 1)
    os.set_blocking(parent.stdout.fileno(), True)
    os.killpg(parent.pid, signal.SIGKILL)
    assert ended(parent) == -signal.SIGKILL


def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    child = Child(str(tmp_path / "stubborn.py"), str(tmp_path), stdout=subprocess.PIPE)
    with child:
        assert child.process.stdout is not None
        child.process.stdout.readline()
        assert child.end(patience=0.1) == -signal.SIGKILL
    assert child.end() == -signal.SIGKILL  # once more does no harm


@pytest.mark.slow
def test_a_child_that_has_ended_by_itself(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    with Child(str(tmp_path / "short.py"), "a", "b c", stdout=subprocess.PIPE) as child:
        assert child.process.stdout is not None
        assert child.process.stdout.read() == b"['a', 'b c']\n"
        assert child.process.wait(LIMIT) == 3
    with Child("reticent.cli", "--version", stdout=subprocess.PIPE) as module:
        assert module.process.stdout is not None
        assert module.process.stdout.read().strip()
        assert module.process.wait(LIMIT) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_learns_ends_with_its_server(tmp_path: Path, number: signal.Signals) -> None:
    server = start(tmp_path, LEARNER)
    assert server.stdout is not None
    server.stdout.readline()
    server.send_signal(number)
    assert ended(server) == -number


def test_a_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with Folder("kept-", tmp_path) as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_text("private")
    assert list(tmp_path.iterdir()) == []


def test_if_the_keeper_is_ended_the_folder_goes_all_the_same(tmp_path: Path) -> None:
    kept = Folder("kept-", tmp_path)
    with kept as folder:
        (folder / "a").write_text("private")
        kept._keeper.kill()
    assert list(tmp_path.iterdir()) == []


def test_signals_that_are_ignored_stay_ignored() -> None:
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGHUP, signal.SIGTERM)}
    try:
        with processes.ending_in_good_order():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_only_the_first_signal_counts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    cleaned = []

    def work() -> None:
        with processes.ending_in_good_order(code=7):
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(True)

    with pytest.raises(SystemExit) as left:
        work()
    assert (left.value.code, cleaned) == (7, [True])
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])  # SIGHUP becomes SIGTERM
def test_the_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    demo = start(tmp_path, DEMO)
    assert demo.stdout is not None
    while "Ctrl-C ends it." not in (line := demo.stdout.readline()):
        assert line, "the demo did not start"
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    demo.send_signal(number)
    assert ended(demo) == FAILED.get(number, -number)
    assert list((tmp_path / "temporary").iterdir()) == []
