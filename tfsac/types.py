"""Data structures passed between environments, memories and agents: NamedTuples, which `tf.nest` can map over."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

# Observation keys of the action mask and of each team member's observation; extra that marks demonstrated steps.
ACTION_MASK, AGENT_STATE, EXPERT = "action_mask", "agent_state", "expert"
# Observation keys of goal environments: the achieved goal and the desired one.
ACHIEVED_GOAL, DESIRED_GOAL = "achieved_goal", "desired_goal"
BEHAVIOUR = "behaviour/"  # extras: parameters of the distribution that an action was drawn from, by name
# Prefix of the fields of a hybrid action, and the names of its parts.
ACTION, DISCRETE, CONTINUOUS = "action/", "discrete", "continuous"
# Extras of policies with a state: the state before and after the step, by field, and whether the step switched.
STATE, NEXT_STATE, SWITCH = "state/", "next_state/", "switch"
OBSERVATION = "observation/"  # prefix of an observation's key among other arrays, in memories, checkpoints and files
TARGET = "_target"  # suffix of a target network's name
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"  # state fields of recurrent policies
# Step types of a `Sequence`: first observation of an episode, one in between, the one after its last action, none.
FIRST, MID, LAST, EMPTY = 0, 1, 2, 3


def input_name(key: str) -> str:
    """Returns the name of an exported policy's input for an observation key, such as `arm_angle` for `arm.angle`."""
    name = re.sub(r"[^A-Za-z0-9]", "_", key)
    return name if name[:1].isalpha() else f"arg_{name}"


class ArraySpec(NamedTuple):
    """Shape, dtype and bounds of one array, without a batch dimension.

    Attributes:
        shape: sizes of the dimensions.
        dtype: name of a NumPy dtype: "float32", "uint8" for images, "bool" for action masks.
        low, high: bounds of this shape, or None without bounds.
        stacked: whether it is an image `[H, W, k]` of the last k frames of its episode, one per step, newest last; an
            episode's first observation repeats its first frame. Memories store each frame once.
    """

    shape: tuple[int, ...]
    dtype: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    stacked: bool = False


class DiscreteSpec(NamedTuple):
    """Discrete actions; agents and memories number them from 0.

    Attributes:
        num_actions: number of actions.
        shape: () for one agent, `(P,)` for P agents.
        start: the environment's number for the first action.
        dtype: dtype of stored actions.
        native_dtype: dtype of the actions that the environment's `step` takes.
    """

    num_actions: int
    shape: tuple[int, ...] = ()
    start: int = 0
    dtype: str = "int32"
    native_dtype: str = "int64"


class FactorsSpec(NamedTuple):
    """A Discrete or MultiDiscrete space in a `HybridSpec`. Each entry is a factor with values numbered from 0.

    Attributes:
        sizes: number of values of each entry, in C order.
        starts: the environment's number for each entry's first value.
        shape: shape of the environment's action.
        native_dtype: dtype of the actions that the environment's `step` takes.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...] = ()
    native_dtype: str = "int64"


class HybridSpec(NamedTuple):
    """Several discrete actions at once (the factors), or discrete and continuous actions together.

    An agent's action is an array `[F]` of factors, numbered from 0, or an array `[A]` in [-1, 1]. With both parts it is
    a dict of them, "discrete" and "continuous".

    Attributes:
        leaves: spaces of the environment's action by name, in order: the keys of a Dict, "action_0", ... for a Tuple.
        structure: nesting of the environment's action: one of these names, or a dict or tuple of structures.
    """

    leaves: dict[str, FactorsSpec | ArraySpec]
    structure: Any

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each of the F factors."""
        return tuple(n for leaf in self.leaves.values() if isinstance(leaf, FactorsSpec) for n in leaf.sizes)

    @property
    def num_joint_actions(self) -> int:
        """K, the number of combinations of all factors; 1 without factors."""
        return math.prod(self.sizes)

    @property
    def action_size(self) -> int:
        """A, the number of continuous dimensions."""
        return sum(math.prod(leaf.shape) for leaf in self.leaves.values() if isinstance(leaf, ArraySpec))

    @property
    def offsets(self) -> np.ndarray:
        """Index of each factor's first value among the values of all factors, `[F]`."""
        return np.cumsum([0, *self.sizes])[:-1]

    @property
    def low(self) -> np.ndarray | None:
        """The environment's lower bounds of the continuous dimensions, `[A]`, or None without any."""
        return self._bound("low")

    @property
    def high(self) -> np.ndarray | None:
        """The environment's upper bounds of the continuous dimensions, `[A]`, or None without any."""
        return self._bound("high")

    def _bound(self, name: str) -> np.ndarray | None:
        bounds = [np.ravel(getattr(leaf, name)) for leaf in self.leaves.values() if isinstance(leaf, ArraySpec)]
        return np.concatenate(bounds) if bounds else None

    def best(self, score: np.ndarray) -> np.ndarray:
        """Returns the value with the largest score `[..., S]` of each factor, `[..., F]` int32."""
        factors = np.split(score, self.offsets[1:], axis=-1) if self.sizes else []
        return np.array([factor.argmax(axis=-1) for factor in factors], np.int32).T

    def split(self, action: Any, reshape: Callable[..., Any]) -> dict[str, Any]:
        """Splits an agent's action, arrays or tensors `[..., F]` and `[..., A]`, into leaves, each in its shape."""
        leaves, ends = {}, [0, 0]
        for name, leaf in self.leaves.items():
            kind, size = isinstance(leaf, ArraySpec), math.prod(leaf.shape)
            part = self.parts(action)[kind][..., ends[kind] : ends[kind] + size]
            leading = [-1 if n is None else n for n in part.shape[:-1]]  # a tensor's batch size may be unknown
            leaves[name], ends[kind] = reshape(part, (*leading, *leaf.shape)), ends[kind] + size
        return leaves

    def structured(self, leaves: Mapping[str, Any]) -> Any:
        """Arranges values by leaf in the structure of the environment's action."""
        return map_action(lambda name: leaves[name], self.structure)

    def leaves_in(self, action: Any) -> dict[str, Any]:
        """Returns the leaves of an environment's action by name; raises LookupError, TypeError or ValueError for
        another structure.
        """
        leaves: dict[str, Any] = {}
        map_action(lambda name, x: leaves.update({name: x}), self.structure, action)
        return leaves

    def parts(self, action: Any) -> tuple[Any, Any]:
        """Returns factors and continuous dimensions of an agent's action; None for a part that it lacks."""
        if isinstance(action, Mapping):
            return action[DISCRETE], action[CONTINUOUS]
        return (action, None) if self.sizes else (None, action)

    def whole(self, discrete: Any, continuous: Any) -> Any:
        """Returns the agent's action made of these parts, without a part that it lacks."""
        if self.sizes and self.action_size:
            return {DISCRETE: discrete, CONTINUOUS: continuous}
        return discrete if self.sizes else continuous


ActionSpec = ArraySpec | DiscreteSpec | HybridSpec


class Spec(NamedTuple):
    """Observations and actions of an agent; every network and memory is built from it.

    Attributes:
        observation: the arrays of one observation by key; a plain Box has the single key "observation". The key
            "action_mask" marks the valid discrete actions.
        action: continuous (with the environment's bounds, though the agent acts in [-1, 1]), discrete or hybrid.
        extras: arrays stored with each step: the extras of `act`, and whether an expert made the step.
        num_agents: None, or P team members that share one policy; arrays of observation and action then begin with P.
        num_rewards: None for one reward per step, or D rewards, stored as `[D]`.
        state: fields of the policy's state that its network reads in addition to the observation.
    """

    observation: dict[str, ArraySpec]
    action: ActionSpec
    extras: dict[str, ArraySpec] = {}
    num_agents: int | None = None
    num_rewards: int | None = None
    state: dict[str, ArraySpec] = {}

    @property
    def action_fields(self) -> dict[str, ArraySpec | DiscreteSpec]:
        """The arrays of an agent's action by field name in a record; see `action_fields`."""
        action = self.action
        if not isinstance(action, HybridSpec):
            return {"action": action}
        discrete, continuous = ArraySpec((len(action.sizes),), "int32"), ArraySpec((action.action_size,), "float32")
        return action_fields(action.whole(discrete, continuous))

    def unstacked(self) -> Spec:
        """Returns the spec with frame stacks as ordinary images."""
        return self._replace(observation={key: a._replace(stacked=False) for key, a in self.observation.items()})

    def single_agent(self) -> Spec:
        """Returns the spec of a single team member; a spec without a team is returned unchanged."""
        if self.num_agents is None:
            return self

        def single(array: ArraySpec) -> ArraySpec:
            low, high = (None if bound is None else bound[0] for bound in (array.low, array.high))
            return ArraySpec(array.shape[1:], array.dtype, low, high)

        action = self.action
        if isinstance(action, DiscreteSpec):
            action = action._replace(shape=())
        elif isinstance(action, ArraySpec):
            action = single(action)
        observation = {key: single(array) for key, array in self.observation.items()}
        return self._replace(observation=observation, action=action, num_agents=None)


class Step(NamedTuple):
    """One step of E environments.

    Attributes:
        observation: `[E, ...]` by key, raw: the observation acted on.
        action: `[E, ...]`, as the agent chose it.
        reward, terminated, truncated: `[E]`; rewards are `[E, D]` with D rewards per step.
        next_observation: `[E, ...]` by key; where an episode ended, its last observation.
        extras: `[E, ...]` by name, arrays that the agent stores with the step.
        length: `[E]`, steps of the episode so far, including this one.
        following: `[E, ...]` by key, the observation to act on next.
        logged: `[E]` by key of `info`, values of the last step of episodes that ended; NaN elsewhere.
        info: one per environment; the dict of arrays of a `VectorEnv`; empty from Ray actors.
        autoreset: `[E]`, true where the environment ignored the action and only started an episode, as a `VectorEnv`
            does in Gymnasium's autoreset mode NEXT_STEP. () if that never happens.
    """

    observation: dict[str, np.ndarray]
    action: Any
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
        action: `[B, A]` in [-1, 1]; discrete `[B]`, numbered from 0; or hybrid, as in `HybridSpec`.
        reward: `[B]`, after the reward filters.
        discount: `[B]`, the bootstrap discount gamma^n * (1 - terminated): nonzero at a time limit.
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

    A row is an observation and the step taken from it. An episode's end adds a row without a step: the observation
    after the last action, with step type LAST. A new episode may follow in the same sequence. Rows before the first or
    after the newest data are EMPTY: all zeros.

    Attributes:
        observation: arrays `[T, B, ...]` by key.
        action: `[T, B, A]` in [-1, 1], or discrete `[T, B]`, numbered from 0.
        reward: `[T, B]`, or `[T, B, D]` with D rewards per step; for the action at the same index, after the reward
            filters.
        nonterminal: `[T, B]`, 1 - terminated: zero at the action that terminated the episode.
        step_type: `[T, B]` int32, FIRST, MID, LAST or EMPTY.
        extras: arrays `[T, B, ...]` by name. In a LAST row `state/x` is the `next_state/x` of the row before; the
            previous action and (raw) reward are those of the row before. Other extras, action, reward and nonterminal
            are zero.
        initial_state: arrays `[B, ...]` by field, state of LSTMs before the first row; empty if they start from zeros.
    """

    observation: Any
    action: Any
    reward: Any
    nonterminal: Any
    step_type: Any
    extras: Any = ()
    initial_state: Any = ()


class Segments(NamedTuple):
    """A batch of B segments of up to T consecutive steps, time first: `[T, B]`, or `[U, T, B]` for U updates.

    A replayed segment belongs to one episode. A segment of a fresh rollout continues with the next episode after a
    terminated step. Entries without a step, at the end of a segment or in an empty one, are all zero.

    Attributes:
        observation: arrays `[T + 1, B, ...]` by key; the last entry is always the one after the segment's last step.
        action: `[T, B, A]`, or discrete `[T, B]`, numbered from 0.
        reward: `[T, B]`, for the action at the same index, after the reward filters.
        nonterminal: `[T, B]`, 1 - terminated.
        is_first: `[T, B]`, 1 for the first step of an episode, else 0.
        length: `[T, B]`, number of steps of the step's episode within the segment; zero without a step.
        on_policy: `[T, B]`, 1 for steps of a fresh rollout of the current policy, otherwise 0.
        initial_state: arrays `[B, ...]` by field, state of LSTMs before the first step; zero for replayed segments.
        extras: arrays `[T, B, ...]` by name, including the parameters of the behaviour distribution.
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
    """Batches, one per update, that a compiled call itself draws from a memory on its device, with `inputs`."""

    num_updates: int
    inputs: Any


Batch = Transition | Sequence | Segments
Batches = Batch | BatchesOnDevice  # stacked for the updates of a call
Metrics = dict[str, Any]
Arrays = Mapping[str, np.ndarray]  # by observation key, or by field of a policy's state
Tensors = Mapping[str, Any]  # the same as TensorFlow tensors


class ActResult(NamedTuple):
    """Return value of a policy's `act`.

    Attributes:
        action: `[E, A]` in [-1, 1]; discrete `[E]`, numbered from 0; or hybrid. E is the number of environments.
        state: the policy's next state, arrays `[E, ...]` by field.
        extras: arrays to store with the step.
    """

    action: Any
    state: Mapping[str, np.ndarray] = {}
    extras: Mapping[str, np.ndarray] = {}


class Update(NamedTuple):
    """Result of one update: scalar metrics by name, in the order of computation, and absolute TD errors, averaged over
    the critics, `[B]`; `[0]` for agents that learn from sequences.
    """

    metrics: Metrics
    td_error_B: Any


class UpdateResult(NamedTuple):
    """Return value of `Agent.update`.

    Attributes:
        metrics: `[U, M]` float32 of U updates; `Agent.metric_names` names the columns. NaN if not reported.
        priority: `[U, B]` float32, absolute TD errors, averaged over the critics; empty unless the memory is
            prioritised.
        actor_weights: weights for acting in NumPy from now on; None for the agent's current ones.
        reported: `[U, M]`, which metrics an update reports. The last updates of a call report all, the others only
            losses; updates without the policy (policy delay) report none of its metrics.
    """

    metrics: np.ndarray
    priority: np.ndarray
    actor_weights: list[np.ndarray] | None
    reported: np.ndarray


def action_fields(action: Any) -> dict[str, Any]:
    """Returns the arrays of an agent's action by field name in a record: "action", or "action/discrete" and
    "action/continuous" for a dict.
    """
    return {ACTION + part: x for part, x in action.items()} if isinstance(action, dict) else {"action": action}


def action_in(fields: Any, names: Iterable[str]) -> Any:
    """Returns the agent's action from the fields of a record with these names; see `action_fields`."""
    parts = {name.removeprefix(ACTION): fields[name] for name in names if name.startswith(ACTION)}
    return parts or fields["action"]


def map_action(function: Callable[..., Any], *actions: Any) -> Any:
    """Applies a function to the arrays of actions, which may be nested in dicts and tuples of the same structure."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: map_action(function, *(action[key] for action in actions)) for key in first}
    if isinstance(first, tuple):
        return tuple(map_action(function, *parts) for parts in zip(*actions, strict=True))
    return function(*actions)


def arrays_of(action: Any) -> list[Any]:
    """Returns the arrays of an action (an array, or a dict or tuple of actions), in order."""
    arrays: list[Any] = []
    map_action(arrays.append, action)
    return arrays


def limits_of(action: Any, of: ActionSpec) -> list[tuple[Any, Any, Any]]:
    """Returns the arrays of an agent's action, each with its smallest and largest allowed value."""
    if isinstance(of, HybridSpec):
        discrete, continuous = of.parts(action)
        limits = [(discrete, 0, np.array(of.sizes) - 1), (continuous, -1, 1)]
        return [limit for limit in limits if limit[0] is not None]
    return [(action, 0, of.num_actions - 1) if isinstance(of, DiscreteSpec) else (action, -1, 1)]


def is_valid(action: Any, mask: np.ndarray, of: ActionSpec) -> np.ndarray:
    """Returns whether masks `[..., n]` allow the agent's actions, `[..., 1]`; `[..., F]` for several factors."""
    index = of.parts(action)[0] + of.offsets if isinstance(of, HybridSpec) else action[..., None]
    return np.take_along_axis(mask, index, axis=-1)


def some_valid(mask: np.ndarray, of: ActionSpec) -> np.ndarray:
    """Returns whether masks `[..., n]` allow any action; for several factors, `[..., S]`, a value of each."""
    if not isinstance(of, HybridSpec):
        return np.asarray(mask.any(axis=-1))
    return np.logical_and.reduce([factor.any(axis=-1) for factor in np.split(mask, of.offsets[1:], axis=-1)])


def rows_of(action: Any) -> Any:
    """Returns actions `[n, ...]` one by one: an array unchanged, dicts and tuples as a list of n."""
    if isinstance(action, dict | tuple):
        return [map_action(lambda x, i=i: x[i], action) for i in range(len(arrays_of(action)[0]))]
    return action


def same_bounds(a: Any, b: Any) -> bool:
    """Returns whether action bounds, as nested lists, are equal up to rounding."""
    return np.shape(a) == np.shape(b) and np.allclose(np.array(a, float), np.array(b, float), rtol=1e-6, atol=0.0)
