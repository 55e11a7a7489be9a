"""The structs that travel between environments, memories and agents: NamedTuples, over which `tf.nest` maps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

# Observations of valid actions and of each agent, and the mark of demonstrated steps.
ACTION_MASK, AGENT_STATE, EXPERT = "action_mask", "agent_state", "expert"
# Observations of goal environments: what was achieved, and what is wanted.
ACHIEVED_GOAL, DESIRED_GOAL = "achieved_goal", "desired_goal"
BEHAVIOUR = "behaviour/"  # extras: parameters of the distribution that an action was drawn from, by name
# Begins the fields of a hybrid action, and its parts.
ACTION, DISCRETE, CONTINUOUS = "action/", "discrete", "continuous"
# Extras of policies with a state: what it was before and after the step, by field, and whether the step switched.
STATE, NEXT_STATE, SWITCH = "state/", "next_state/", "switch"
OBSERVATION = "observation/"  # begins an observation's key among other arrays, in memories, checkpoints and files
TARGET = "_target"  # ends the name of a target network
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"  # fields of the state of recurrent policies
# Step types of a `Sequence`: first observation of an episode, one between, the observation after its last action, none.
FIRST, MID, LAST, EMPTY = 0, 1, 2, 3


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


class FactorsSpec(NamedTuple):
    """A Discrete or MultiDiscrete space in a `HybridSpec`, each of whose entries is a factor, numbered from 0.

    Attributes:
        sizes: how many values each entry has, in C order.
        starts: the environment's own number of each entry's first value.
        shape: of the environment's action.
        native_dtype: of the actions that the environment's `step` takes.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...] = ()
    native_dtype: str = "int64"


class HybridSpec(NamedTuple):
    """Several discrete actions at once, the factors, or discrete and continuous ones together.

    An agent's action is an array `[F]` of factors, numbered from 0, or `[A]` of numbers in [-1, 1]; where there are
    both, it is a dict of them, "discrete" and "continuous".

    Attributes:
        leaves: spaces of the environment's action in their order, by name: a Dict's keys, "action_0", ... of a Tuple.
        structure: of the environment's action, with these names: a name, or a dict or tuple of structures.
    """

    leaves: dict[str, FactorsSpec | ArraySpec]
    structure: Any

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each of the F factors has."""
        return tuple(n for leaf in self.leaves.values() if isinstance(leaf, FactorsSpec) for n in leaf.sizes)

    @property
    def num_joint_actions(self) -> int:
        """K, how many combinations of all factors there are; 1 without factors."""
        return math.prod(self.sizes)

    @property
    def action_size(self) -> int:
        """A, the number of continuous dimensions."""
        return sum(math.prod(leaf.shape) for leaf in self.leaves.values() if isinstance(leaf, ArraySpec))

    @property
    def offsets(self) -> np.ndarray:
        """Where the values of each factor begin among those of all, `[F]`."""
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
        """Returns the value of each factor, `[..., F]` int32, whose score in `[..., S]` is largest."""
        factors = np.split(score, self.offsets[1:], axis=-1) if self.sizes else []
        return np.array([factor.argmax(axis=-1) for factor in factors], np.int32).T

    def split(self, action: Any, reshape: Callable[..., Any]) -> dict[str, Any]:
        """Returns the numbers of an agent's action, arrays or tensors `[..., F]` and `[..., A]`, by leaf and in its
        shape.
        """
        leaves, ends = {}, [0, 0]
        for name, leaf in self.leaves.items():
            kind, size = isinstance(leaf, ArraySpec), math.prod(leaf.shape)
            part = self.parts(action)[kind][..., ends[kind] : ends[kind] + size]
            leading = [-1 if n is None else n for n in part.shape[:-1]]  # tensors have any number of rows
            leaves[name], ends[kind] = reshape(part, (*leading, *leaf.shape)), ends[kind] + size
        return leaves

    def structured(self, leaves: Mapping[str, Any]) -> Any:
        """Returns values by leaf in the structure of the environment's action."""
        return map_action(lambda name: leaves[name], self.structure)

    def leaves_in(self, action: Any) -> dict[str, Any]:
        """Returns the leaves of an environment's action by name; raises a LookupError, TypeError or ValueError for
        another structure.
        """
        leaves: dict[str, Any] = {}
        map_action(lambda name, x: leaves.update({name: x}), self.structure, action)
        return leaves

    def parts(self, action: Any) -> tuple[Any, Any]:
        """Returns factors and continuous dimensions of an agent's action, None for what it has not."""
        if isinstance(action, Mapping):
            return action[DISCRETE], action[CONTINUOUS]
        return (action, None) if self.sizes else (None, action)

    def whole(self, discrete: Any, continuous: Any) -> Any:
        """Returns the agent's action with these parts; one that it has not is left out."""
        if self.sizes and self.action_size:
            return {DISCRETE: discrete, CONTINUOUS: continuous}
        return discrete if self.sizes else continuous


ActionSpec = ArraySpec | DiscreteSpec | HybridSpec


class Spec(NamedTuple):
    """What an agent sees and does; every network and memory is built from it.

    Attributes:
        observation: the arrays of one observation by key; a plain box has the one key "observation". The key
            "action_mask" tells which discrete actions are valid.
        action: continuous, with the environment's own bounds while the agent acts in [-1, 1], discrete, or hybrid.
        extras: what is stored with each step: what `act` returns, and whether an expert made the step.
        num_agents: None, or P agents that share one policy; every array of observation and action then begins with P.
        num_rewards: None for one reward a step, or D rewards, stored as `[D]`.
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
        """The arrays of an agent's action, by the names of their fields in a record; see `action_fields`."""
        action = self.action
        if not isinstance(action, HybridSpec):
            return {"action": action}
        discrete, continuous = ArraySpec((len(action.sizes),), "int32"), ArraySpec((action.action_size,), "float32")
        return action_fields(action.whole(discrete, continuous))

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
        action: `[B, A]`, in [-1, 1], or `[B]` discrete ones, numbered from 0; hybrid ones as `HybridSpec` has them.
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
    the last action, of step type LAST; a new episode may follow it in the same sequence. Rows before the first or after
    the newest data are EMPTY: all zeros.

    Attributes:
        observation: arrays `[T, B, ...]` by key.
        action: `[T, B, A]`, in [-1, 1], or `[T, B]` discrete ones, numbered from 0.
        reward: `[T, B]`, or `[T, B, D]` of D rewards a step; of the action at the same index, after the reward filters.
        nonterminal: `[T, B]`, 1 - terminated: zero at the action with which the task ended.
        step_type: `[T, B]` int32, FIRST, MID, LAST or EMPTY.
        extras: arrays `[T, B, ...]` by name. In a LAST row `state/x` is the `next_state/x` of the row before, or the
            previous action and (raw) reward, those of the row before; other extras, action, reward and nonterminal are
            zero.
        initial_state: arrays `[B, ...]` by field, of LSTMs before the first row; empty where they start from zeros.
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
        action: `[E, A]` in [-1, 1], or `[E]` discrete ones, numbered from 0, or hybrid ones; E environments.
        state: the policy's next state, arrays `[E, ...]` by field.
        extras: what is stored with the step.
    """

    action: Any
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


def action_fields(action: Any) -> dict[str, Any]:
    """Returns the arrays of an agent's action by the names of their fields in a record: "action", or of a dict
    "action/discrete" and "action/continuous".
    """
    return {ACTION + part: x for part, x in action.items()} if isinstance(action, dict) else {"action": action}


def action_in(fields: Any, names: Iterable[str]) -> Any:
    """Returns the agent's action among the fields of a record, with these names; see `action_fields`."""
    parts = {name.removeprefix(ACTION): fields[name] for name in names if name.startswith(ACTION)}
    return parts or fields["action"]


def map_action(function: Callable[..., Any], *actions: Any) -> Any:
    """Returns a function of the arrays of actions, alone or in dicts and tuples of the same structure."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: map_action(function, *(action[key] for action in actions)) for key in first}
    if isinstance(first, tuple):
        return tuple(map_action(function, *parts) for parts in zip(*actions, strict=True))
    return function(*actions)


def arrays_of(action: Any) -> list[Any]:
    """Returns the arrays of an action, which is one, or a dict or tuple of actions, in order."""
    arrays: list[Any] = []
    map_action(arrays.append, action)
    return arrays


def limits_of(action: Any, of: ActionSpec) -> list[tuple[Any, Any, Any]]:
    """Returns the arrays of an agent's action with the least and the largest numbers that they may have."""
    if isinstance(of, HybridSpec):
        discrete, continuous = of.parts(action)
        limits = [(discrete, 0, np.array(of.sizes) - 1), (continuous, -1, 1)]
        return [limit for limit in limits if limit[0] is not None]
    return [(action, 0, of.num_actions - 1) if isinstance(of, DiscreteSpec) else (action, -1, 1)]


def is_valid(action: Any, mask: np.ndarray, of: ActionSpec) -> np.ndarray:
    """Returns whether masks `[..., n]` allow the agent's actions, `[..., 1]`; of several factors `[..., F]`."""
    index = of.parts(action)[0] + of.offsets if isinstance(of, HybridSpec) else action[..., None]
    return np.take_along_axis(mask, index, axis=-1)


def some_valid(mask: np.ndarray, of: ActionSpec) -> np.ndarray:
    """Returns where masks `[..., n]` allow an action; of several factors `[..., S]`, a value of each."""
    if not isinstance(of, HybridSpec):
        return np.asarray(mask.any(axis=-1))
    return np.logical_and.reduce([factor.any(axis=-1) for factor in np.split(mask, of.offsets[1:], axis=-1)])


def rows_of(action: Any) -> Any:
    """Returns actions `[n, ...]` one by one: of an array itself, else a list of n dicts or tuples."""
    if isinstance(action, dict | tuple):
        return [map_action(lambda x, i=i: x[i], action) for i in range(len(arrays_of(action)[0]))]
    return action


def same_bounds(a: Any, b: Any) -> bool:
    """Returns whether bounds of actions, as nested lists, are the same but for rounding."""
    return np.shape(a) == np.shape(b) and np.allclose(np.array(a, float), np.array(b, float), rtol=1e-6, atol=0.0)
