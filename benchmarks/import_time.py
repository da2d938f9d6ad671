"""CPU time of `import reticent` against `import numpy`, each in fresh processes: the ratio of the medians.

    python benchmarks/import_time.py [--runs 30]

Runs alternate, so that whatever else the machine does slows both alike. Exit code 1 if the ratio is above 1.3.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

MOST = 1.3
CODE = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


def seconds(module: str) -> float:
    """CPU time of one import in a fresh process."""
    done = subprocess.run([sys.executable, "-c", CODE.format(module)], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    modules = ("numpy", "reticent", "reticent.privacy")
    for module in modules:  # compiles and caches the files
        seconds(module)
    times = [[seconds(module) for module in modules] for _ in range(runs)]
    numpy, *ours = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"import numpy                 {1e3 * numpy:7.1f} ms")
    for module, median in zip(modules[1:], ours, strict=True):
        print(f"import {module:21s} {1e3 * median:7.1f} ms   {median / numpy:5.2f} × numpy")
    good = ours[0] <= MOST * numpy
    print(f"target at most {MOST} × numpy: {'met' if good else 'MISSED'}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
