"""Numbers as people read them."""

from __future__ import annotations


def short(value: float | None, like: float | None = None) -> str:
    """Returns a return with one digit after the point, or with two where it, or the one `like` it, is below 10."""
    if value is None:
        return "-"
    return f"{value:.{1 if abs(value if like is None else like) >= 10 else 2}f}"
