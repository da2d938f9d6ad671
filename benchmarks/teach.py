"""`reticent teach` of a large table, beside pandas reading the same file: seconds, and the ratio.

    python -m benchmarks.teach [--rows 1000000] [--runs 3]

The table has 20 columns: 18 numbers, one category and the label. Each command is a process of its own, from its start
to its end, with all imports; `reticent teach` has its rows on disk when it ends. "here" opens the predictor; "server"
sends the rows to one that runs on this machine. The best of some runs, which take turns. Exits with 1 if a ratio is
above 4.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from reticent.data.schema import Column, Schema
from reticent.service.client import Client

MOST = 4.0
FIT = 20_000  # rows
PORT = 8399
READ = "import sys, pandas; pandas.{read}(sys.argv[1])"


def made(folder: Path, rows: int) -> None:
    """Write the table as CSV and as Parquet, one to fit, and the schema."""
    generator = np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {f"x{place}": generator.normal(size=rows).round(4) for place in range(14)}
    columns |= {f"n{place}": generator.integers(0, 1000, rows) for place in range(4)}
    columns["ward"] = np.array(list("abcd"))[generator.integers(0, 4, rows)]
    columns["ill"] = np.where(columns["x0"] > 0, "yes", "no")
    frame = pd.DataFrame(columns)
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_parquet(folder / "table.parquet")
    frame[:FIT].to_csv(folder / "fit.csv", index=False)
    numbers = [Column(f"x{place}", "number", range=(-4, 4)) for place in range(14)]
    numbers += [Column(f"n{place}", "number", range=(0, 1000)) for place in range(4)]
    schema = Schema((*numbers, Column("ward", "category", categories=tuple("abcd"))), "ill", ("no", "yes"))
    (folder / "schema.toml").write_text(schema.to_toml())


def reticent(*words: str) -> list[str]:
    return [sys.executable, "-m", "reticent.cli", *words]


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds by the clock, and of processor time, of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, check=True)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "RETICENT_HOME": str(folder / "home")}


def fresh(folder: Path) -> None:
    """The predictor as it was fitted, and a table that was not taught."""
    shutil.rmtree(folder / "home" / "taught", ignore_errors=True)
    shutil.copytree(folder / "home" / "fitted", folder / "home" / "taught")
    for record in folder.glob("*.taught"):
        record.unlink()


def served(folder: Path, file: str) -> tuple[float, float]:
    """Teach a server, which starts before the clock does."""
    command = reticent("serve", "taught", "--port", str(PORT))
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            url = f"http://127.0.0.1:{PORT}"
            with Client(url, model="taught", retries=20) as client:
                client.status()
            return measured(reticent("teach", "taught", "--table", file, "--url", url), folder)
        finally:
            server.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    shown = Table("file", "who", "seconds (clock)", "seconds (processor)", "times pandas (clock)",
                  title=f"{options.rows:,} rows of 20 columns, the best of {options.runs}")  # fmt: skip
    worst = 0.0
    with TemporaryDirectory() as name:
        folder = Path(name)
        made(folder, options.rows)
        fit = ("fit.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--name", "fitted")
        measured(reticent("fit", *fit, "--truth", "rows"), folder)
        for file, read in (("table.csv", "read_csv"), ("table.parquet", "read_parquet")):
            who: dict[str, Callable[[], tuple[float, float]]] = {
                f"pandas.{read}": partial(measured, [sys.executable, "-c", READ.format(read=read), file], folder),
                "reticent teach, here": partial(measured, reticent("teach", "taught", "--table", file), folder),
                "reticent teach, server": partial(served, folder, file),
            }
            times: dict[str, list[tuple[float, float]]] = {one: [] for one in who}
            for _ in range(options.runs):
                for one, run in who.items():
                    fresh(folder)
                    times[one].append(run())
            best = {one: (min(each[0] for each in some), min(each[1] for each in some)) for one, some in times.items()}
            pandas = best[f"pandas.{read}"][0]
            for one, (clock, processor) in best.items():
                shown.add_row(file, one, f"{clock:.2f}", f"{processor:.2f}", f"{clock / pandas:.2f}")
                worst = max(worst, clock / pandas)
    Console().print(shown)
    print(f"target at most {MOST:g} times pandas: {'met' if worst <= MOST else 'MISSED'}")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
