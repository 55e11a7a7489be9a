"""Formats numbers for people."""

from __future__ import annotations


def short(value: float | None, like: float | None = None) -> str:
    """Formats a return with one decimal, or with two if its magnitude (or that of `like`, if given) is below 10."""
    if value is None:
        return "-"
    return f"{value:.{1 if abs(value if like is None else like) >= 10 else 2}f}"
