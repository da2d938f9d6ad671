"""Online logistic regression of `river`, which is not private and sees each true label at once.

`river` is no dependency of reticent. It runs in an environment of its own, which the first measurement makes outside of
the checkout: in the folder that RETICENT_RIVER names, or in the folder of temporary files. This module is also the
program that runs there, so it imports nothing of reticent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = "0.26.1"
FOLDER = "RETICENT_RIVER"  # the environment variable that names the folder of the environment


def answers(X: Any, y: NDArray[np.int64]) -> NDArray[np.int64]:
    """What `river` answers to each row, before it learns its label. Dense columns are standardised as rows come.

    Parameters
    ----------
    X : array or CSR matrix
        The rows, in order of time.
    y : array of int
        Their labels, 0 and 1.
    """
    with tempfile.TemporaryDirectory() as folder:
        rows, found = Path(folder) / "rows.npz", Path(folder) / "answers.npy"
        if isinstance(X, np.ndarray):
            np.savez(rows, X=X, y=y)
        else:
            np.savez(rows, data=X.data, indices=X.indices, indptr=X.indptr, y=y)
        subprocess.run([str(_python()), __file__, str(rows), str(found)], check=True)
        return np.asarray(np.load(found), dtype=np.int64)


def _python() -> Path:
    """The interpreter of the environment, which is made if it is not there."""
    named = os.environ.get(FOLDER)
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"reticent-river-{VERSION}"
    python = folder / "bin" / "python"
    if not (folder / "ready").is_file():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"river=={VERSION}"], check=True)
        (folder / "ready").touch()
    return python


def _online(rows: Path, found: Path) -> None:
    """Answer and learn one row at a time, with the defaults of river."""
    from river import linear_model, preprocessing  # type: ignore[import-not-found,unused-ignore]

    with np.load(rows) as file:
        parts = {name: file[name] for name in file.files}
    y = parts["y"].tolist()
    model: Any = linear_model.LogisticRegression()
    if "X" in parts:
        model = preprocessing.StandardScaler() | model
    got = np.zeros(len(y), dtype=np.int64)
    for index, label in enumerate(y):
        if "X" in parts:
            row = dict(enumerate(parts["X"][index].tolist()))
        else:
            some = slice(parts["indptr"][index], parts["indptr"][index + 1])
            row = dict(zip(parts["indices"][some].tolist(), parts["data"][some].tolist(), strict=True))
        got[index] = model.predict_one(row)
        model.learn_one(row, bool(label))
    np.save(found, got)


if __name__ == "__main__":
    _online(Path(sys.argv[1]), Path(sys.argv[2]))
