"""Discounted returns of what a memory stored, step by step."""

import numpy as np


def statistics_of(rows, discount):
    """Returns the discounted returns of stored rows `[K, E]`, at every one of them, and those that still run."""
    g, returns = np.zeros(rows.shape[1]), []
    for row in rows:
        g = discount * g + row["reward"].astype(np.float64)
        returns.append(g)
        g = np.where(row["terminated"] | row["truncated"], 0.0, g)
    return np.array(returns), g
