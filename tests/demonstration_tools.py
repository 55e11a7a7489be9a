"""Demonstrations and memories beside them whose steps are told apart by their numbers."""

import numpy as np
from toys import vector_spec

from tfsac.memories import Demonstrations, TransitionMemory

SPEC = vector_spec(observation=1, action=1)


def shown(steps=6, ends=None, reward=lambda step: 1000.0 + step):
    """Demonstrations of `steps` steps; step s has 1000 + s everywhere. `ends` is {step: how its episode ended}."""
    ends = {steps - 1: "terminated"} if ends is None else ends
    memory = TransitionMemory(SPEC, steps)
    for step in range(steps):
        add(memory, 1000 + step, reward(step), ends.get(step))
    return Demonstrations(memory.ring[:, 0], "Pendulum-v1", np.zeros(len(ends)))


def add(memory, step, reward, end=None):
    """Adds a step of the first environment, as of all others; step s ends in the observation s + 0.5."""
    many = np.full(memory.num_envs, step)
    memory.add(
        {"observation": many[:, None]},
        many[:, None] / 10_000,
        np.full(memory.num_envs, reward),
        np.full(memory.num_envs, end == "terminated"),
        np.full(memory.num_envs, end == "truncated"),
        {"observation": many[:, None] + 0.5},
    )


def first_steps(batch):
    """Numbers of the steps with which the transitions begin."""
    return batch.observation["observation"][..., 0]


def restored(old, new):
    """Does what a checkpoint does with the memory of a run that is resumed."""
    new.put(0, old.between(0, old.total_rows))
    new.total_rows = old.total_rows
    new.restore(old.state())
    return new
