"""How plots are drawn: as SVG, the same to the last byte whenever the numbers are the same."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """A context in which figures are drawn; `more` sets what matplotlib calls rc parameters, _ standing for a dot."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {"svg.hashsalt": "reticent", "svg.fonttype": "none"}
    with mpl.rc_context(settings | {name.replace("_", "."): value for name, value in more.items()}):
        yield


def svg(figure: Any) -> bytes:
    """The figure as a file, without a date in it. To be called within `style`.

    Parameters
    ----------
    figure : object
        The figure of matplotlib.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(file, metadata={"Date": None})
    return file.getvalue()
