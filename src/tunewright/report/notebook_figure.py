"""A matplotlib figure that notebooks show by themselves; needs the extra `plot`."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that pyplot does not manage: it is shown once, and freed with its last reference."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png", dpi=100)
        return content.getvalue()
