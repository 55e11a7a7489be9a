"""The structs that travel between environments, memories and agents: NamedTuples, over which `tf.nest` maps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# Observations of valid actions and of each agent, and the mark of demonstrated steps.
ACTION_MASK, AGENT_STATE, EXPERT = "action_mask", "agent_state", "expert"
# Observations of goal environments: what was achieved, and what is wanted.
ACHIEVED_GOAL, DESIRED_GOAL = "achieved_goal", "desired_goal"
BEHAVIOUR = "behaviour/"  # extras: parameters of the distribution that an action was drawn from, by name
# Extras of policies with a state: what it was before and after the step, by field, and whether the step switched.
STATE, NEXT_STATE, SWITCH = "state/", "next_state/", "switch"
OBSERVATION = "observation/"  # begins an observation's key among other arrays, in memories, checkpoints and files
TARGET = "_target"  # ends the name of a target network
# Step types of a `Sequence`: first observation of an episode, one between, the observation after its last action.
FIRST, MID, LAST = 0, 1, 2


def input_name(key: str) -> str:
    """Returns how TensorFlow names an exported policy's input for an observation's key: `arm_angle` for `arm.angle`."""
    name = re.sub(r"[^A-Za-z0-9]", "_", key)
    return name if name[:1].isalpha() else f"arg_{name}"


class ArraySpec(NamedTuple):
    """Shape, dtype and bounds of one array, without a batch dimension.

    Attributes:
        shape: sizes of the dimensions.
        dtype: name of a NumPy dtype: "float32", "uint8" for images, "bool" for action masks.
        low, high: bounds `shape`, or None where there are none.
        stacked: whether it is an image `[H, W, k]` of the last k frames of its episode, one after each step, the
            newest last; an episode's first observation repeats its first frame. Memories store each frame once.
    """

    shape: tuple[int, ...]
    dtype: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    stacked: bool = False


class DiscreteSpec(NamedTuple):
    """Discrete actions, which agents and memories number from 0.

    Attributes:
        num_actions: how many there are.
        shape: () for one agent, `(P,)` for P agents.
        start: the environment's own number of the first action.
        dtype: of stored actions.
        native_dtype: of the actions that the environment's `step` takes.
    """

    num_actions: int
    shape: tuple[int, ...] = ()
    start: int = 0
    dtype: str = "int32"
    native_dtype: str = "int64"


class Spec(NamedTuple):
    """What an agent sees and does; every network and memory is built from it.

    Attributes:
        observation: the arrays of one observation by key; a plain box has the one key "observation". The key
            "action_mask" tells which discrete actions are valid.
        action: continuous, with the environment's own bounds while the agent acts in [-1, 1], or discrete.
        extras: what is stored with each step: what `act` returns, and whether an expert made the step.
        num_agents: None, or P agents that share one policy; every array of observation and action then begins with P.
        num_rewards: None for one reward a step, or D rewards, stored as `[D]`.
        state: fields of the policy's state that its network reads in addition to the observation.
    """

    observation: dict[str, ArraySpec]
    action: ArraySpec | DiscreteSpec
    extras: dict[str, ArraySpec] = {}
    num_agents: int | None = None
    num_rewards: int | None = None
    state: dict[str, ArraySpec] = {}

    def unstacked(self) -> Spec:
        """Returns the spec with stacks of frames as any other images."""
        return self._replace(observation={key: a._replace(stacked=False) for key, a in self.observation.items()})

    def single_agent(self) -> Spec:
        """Returns the spec of each of the P agents; a spec without several agents stays as it is."""
        if self.num_agents is None:
            return self

        def single(array: ArraySpec) -> ArraySpec:
            low, high = (None if bound is None else bound[0] for bound in (array.low, array.high))
            return ArraySpec(array.shape[1:], array.dtype, low, high)

        action = self.action._replace(shape=()) if isinstance(self.action, DiscreteSpec) else single(self.action)
        observation = {key: single(array) for key, array in self.observation.items()}
        return self._replace(observation=observation, action=action, num_agents=None)


class Step(NamedTuple):
    """One step of E environments.

    Attributes:
        observation: `[E, ...]` by key, raw, that was acted on.
        action: `[E, ...]`, as the agent chose it.
        reward, terminated, truncated: `[E]`; rewards `[E, D]` of environments with D of them a step.
        next_observation: `[E, ...]` by key; where an episode ended, its last observation.
        extras: `[E, ...]` by name, what the agent stores with the step.
        length: `[E]`, steps of the episode so far, this one included.
        following: `[E, ...]` by key, to act on next.
        logged: `[E]` by key of `info`, numbers in the last step of episodes that ended; NaN elsewhere.
        info: of each environment; of a `VectorEnv` its dict of arrays; nothing from actors on a Ray cluster.
        autoreset: `[E]`, where no step was made: the environment ignored the action and began an episode, as those of a
            `VectorEnv` with Gymnasium's autoreset mode NEXT_STEP do. () where that never happens.
    """

    observation: dict[str, np.ndarray]
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_observation: dict[str, np.ndarray]
    extras: dict[str, np.ndarray]
    length: np.ndarray
    following: dict[str, np.ndarray]
    logged: dict[str, np.ndarray] = {}
    info: Any = []
    autoreset: Any = ()

    @property
    def ended(self) -> np.ndarray:
        """Booleans `[E]`, where an episode ended."""
        return self.terminated | self.truncated


class Transition(NamedTuple):
    """A batch of steps; leading dimensions `[B]`, or `[U, B]` when stacked for U updates.

    Attributes:
        observation: arrays `[B, ...]` by key.
        action: `[B, A]`, in [-1, 1], or `[B]` discrete ones, numbered from 0.
        reward: `[B]`, after the reward filters.
        discount: `[B]`, the bootstrap discount gamma^n * (1 - terminated): not zero where time ran out.
        next_observation: arrays `[B, ...]` by key.
        weight: `[B]` importance weights, or ().
        extras: arrays `[B, ...]` by name.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any
    weight: Any = ()
    extras: Any = ()


class Sequence(NamedTuple):
    """A batch of B sequences of T consecutive rows, time first: `[T, B]`, or `[U, T, B]` when stacked for U updates.

    A row is an observation and the step made there. An episode's end adds a row without a step: the observation after
    the last action, of step type LAST; a new episode may follow it in the same sequence.

    Attributes:
        observation: arrays `[T, B, ...]` by key.
        action: `[T, B, A]`, in [-1, 1].
        reward: `[T, B]`, or `[T, B, D]` of D rewards a step; of the action at the same index, after the reward filters.
        nonterminal: `[T, B]`, 1 - terminated: zero at the action with which the task ended.
        step_type: `[T, B]` int32, FIRST, MID or LAST.
        extras: arrays `[T, B, ...]` by name. In a LAST row `state/x` is the `next_state/x` of the row before, other
            extras, action, reward and nonterminal are zero.
    """

    observation: Any
    action: Any
    reward: Any
    nonterminal: Any
    step_type: Any
    extras: Any = ()


class Segments(NamedTuple):
    """A batch of B segments of up to T consecutive steps, time first: `[T, B]`, or `[U, T, B]` for U updates.

    A replayed segment belongs to one episode. One of a fresh rollout continues with the next episode after a terminated
    step. Where there is no step, at the end of a segment or in a whole one, everything is zero.

    Attributes:
        observation: arrays `[T + 1, B, ...]` by key; the last one is that after the segment's last step, wherever.
        action: `[T, B, A]`, or `[T, B]` discrete ones, numbered from 0.
        reward: `[T, B]`, of the action at the same index, after the reward filters.
        nonterminal: `[T, B]`, 1 - terminated.
        is_first: `[T, B]`, 1 for the first step of an episode, else 0.
        length: `[T, B]`, number of steps of the step's episode within the segment; zero where there is no step.
        on_policy: `[T, B]`, 1 for steps of a fresh rollout of the current policy, 0 for others.
        initial_state: arrays `[B, ...]` by field, of LSTMs before the first step; zero for replayed segments.
        extras: arrays `[T, B, ...]` by name, with the parameters of the behaviour's distribution.
    """

    observation: Any
    action: Any
    reward: Any
    nonterminal: Any
    is_first: Any
    length: Any
    on_policy: Any
    initial_state: Any = ()
    extras: Any = ()


class BatchesOnDevice(NamedTuple):
    """Batches, one for each update, that a compiled call draws itself from a memory on its device, with `inputs`."""

    num_updates: int
    inputs: Any


Batch = Transition | Sequence | Segments
Batches = Batch | BatchesOnDevice  # stacked for the updates of a call
Metrics = dict[str, Any]
Arrays = Mapping[str, np.ndarray]  # by observation key, or by field of a policy's state
Tensors = Mapping[str, Any]  # the same as TensorFlow's tensors


class ActResult(NamedTuple):
    """What a policy's `act` returns.

    Attributes:
        action: `[E, A]` in [-1, 1], or `[E]` discrete ones, numbered from 0; E environments.
        state: the policy's next state, arrays `[E, ...]` by field.
        extras: what is stored with the step.
    """

    action: np.ndarray
    state: Mapping[str, np.ndarray] = {}
    extras: Mapping[str, np.ndarray] = {}


class Update(NamedTuple):
    """Result of one update: scalars by name, in the order in which they arise, and absolute TD errors, mean over the
    critics, `[B]`; `[0]` of agents that learn from sequences.
    """

    metrics: Metrics
    td_error_B: Any


class UpdateResult(NamedTuple):
    """What `Agent.update` returns.

    Attributes:
        metrics: `[U, M]` float32 of U updates; `Agent.metric_names` names the columns. NaN where one is not reported.
        priority: `[U, B]` float32, absolute TD errors, mean over the critics; empty unless the memory is prioritised.
        actor_weights: arrays with which acting computes in NumPy from now on; None for those that the agent has now.
        reported: `[U, M]`, which metrics an update reports: the last ones of a call all, the others losses alone, and
            those that a policy delay leaves out nothing of the policy.
    """

    metrics: np.ndarray
    priority: np.ndarray
    actor_weights: list[np.ndarray] | None
    reported: np.ndarray


def same_bounds(a: Any, b: Any) -> bool:
    """Returns whether bounds of actions, as nested lists, are the same but for rounding."""
    return np.shape(a) == np.shape(b) and np.allclose(np.array(a, float), np.array(b, float), rtol=1e-6, atol=0.0)
