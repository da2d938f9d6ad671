"""A terminal at which tests type what the docs have one type. All that is started there ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from reticent.service.processes import Child, ending_in_good_order


def typed_in(folder: Path, text: str, **environment: str) -> tuple[int, str]:
    """The exit code of a script, and all that it wrote; `reticent` and programs of this Python are in the path."""
    import warm  # not found by the process that runs this file

    path = os.pathsep.join([str(warm.commands()), str(Path(sys.executable).parent), os.environ["PATH"]])
    known = {**os.environ, "PATH": path, **environment}
    with Child(__file__, str(folder), text, environment=known, stdout=subprocess.PIPE) as child:
        assert child.process.stdout is not None
        shown = child.process.stdout.read().decode()
        return child.process.wait(), shown


def run(folder: str, text: str) -> int:
    with ending_in_good_order():
        command = ["bash", "-euo", "pipefail", "-c", text]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.STDOUT, start_new_session=True) as shell:
            try:
                return shell.wait()
            finally:
                with suppress(ProcessLookupError):  # what it has left running
                    os.killpg(shell.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
