"""Hindsight replay matches golden vectors: transitions, goals, rewards, terminations and statistics."""

import numpy as np
import pytest
from golden_tools import read

from tfsac.environments import Filters
from tfsac.memories import HindsightMemory
from tfsac.parameters import FilterParameters
from tfsac.types import ArraySpec, Spec

GOLDEN, META = read("family_her.npz")
ROWS, ENVS, TOTAL = META["rows"], META["envs"], META["total_rows"]
GOAL = ArraySpec((META["goal"],), "float32")
SPEC = Spec(
    {"observation": ArraySpec((), "float32"), "achieved_goal": GOAL, "desired_goal": GOAL}, ArraySpec((1,), "float32")
)
VARIANTS = [
    (which, n, kind) for which in ("future", "final", "episode") for n in (1, 3) for kind in ("kept", "recomputed")
]


class Goals:
    time_limit = META["longest"]

    def __init__(self, kind):
        self.recomputed = kind == "recomputed"

    def reward(self, achieved, desired):
        distance = np.linalg.norm(achieved.astype(np.float64) - desired, axis=-1)
        return -(distance > META["threshold"]).astype(np.float64) if self.recomputed else -distance

    def terminated(self, achieved, desired):
        distance = np.linalg.norm(achieved.astype(np.float64) - desired, axis=-1)
        return distance <= META["threshold"] if self.recomputed else None


def filled(which, n_step, kind):
    """Returns a memory with the contents of the file; observations are slot numbers, and overwritten entries zero."""
    options = {"goals_per_step": META["goals_per_step"], "discount": META["gamma"], "n_step": n_step}
    memory = HindsightMemory(SPEC, ROWS * ENVS, ENVS, goals=Goals(kind), strategy=which, **options)
    for time in range(TOTAL):
        fields = {name: x[time % ROWS] for name, x in GOLDEN.with_prefix("memory/").items()}
        slot = np.float32((time % ROWS) * ENVS + np.arange(ENVS))
        observation = {"observation": slot, **{key: fields[key] for key in ("achieved_goal", "desired_goal")}}
        after = {**observation, "achieved_goal": fields["next_achieved_goal"]}
        ends = [fields[name].astype(bool) & (time >= TOTAL - ROWS) for name in ("terminated", "truncated")]
        memory.add(observation, np.zeros((ENVS, 1)), fields["reward"], *ends, after)
    return memory


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_samples_match(variant):
    want = GOLDEN.with_prefix("{}_{}_{}/".format(*variant))
    memory = filled(*variant)
    index, goal = memory.draw(GOLDEN["input/uniform"][None])
    np.testing.assert_array_equal(index[0], want["slot"])
    np.testing.assert_array_equal(goal[0] >= 0, want["relabelled"])
    np.testing.assert_array_equal(goal[0], want["goal_slot"])
    batch = memory.relabel(index, goal)
    np.testing.assert_array_equal(batch.observation["observation"][0], want["slot"])
    np.testing.assert_array_equal(batch.next_observation["observation"][0], want["last_slot"])
    for observation in (batch.observation, batch.next_observation):
        np.testing.assert_allclose(observation["desired_goal"][0], want["goal"], rtol=0, atol=0)
    np.testing.assert_allclose(batch.reward[0], want["reward"], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(batch.discount[0], want["discount"], rtol=1e-6, atol=0)
    assert batch.reward.dtype == batch.discount.dtype == np.float32


def test_goal_statistics_match():
    filters = Filters(FilterParameters(observation_normalization=True), SPEC, shared=("achieved_goal", "desired_goal"))
    for row in range(ROWS):
        goals = {key: GOLDEN[f"memory/{key}"][row] for key in ("achieved_goal", "desired_goal")}
        filters.learn({"observation": np.zeros(ENVS), **goals})
    for key in ("achieved_goal", "desired_goal"):
        mean, inverse = filters.scale()[key]
        np.testing.assert_allclose(mean, GOLDEN["normalization/goal_mean"], rtol=1e-5)
        np.testing.assert_allclose(1 / inverse**2, GOLDEN["normalization/goal_variance"], rtol=1e-5)
    restored = Filters(FilterParameters(observation_normalization=True), SPEC, shared=("achieved_goal", "desired_goal"))
    restored.restore(filters.state())
    for each in (filters, restored):
        each.learn({"observation": np.zeros(ENVS), **goals})
    assert restored.state() == filters.state() and filters.state()["counts"]["observation"] == (ROWS + 1) * ENVS
    assert filters.state()["counts"]["desired_goal"] == 2 * (ROWS + 1) * ENVS
