"""The spaces of the environment, as a run's config records them, and what they must be later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.training.run_directory import RunDirectory
from tfsac.types import AGENT_STATE, ArraySpec, DiscreteSpec, Spec, same_bounds
from tfsac.utils.files import differences, read_object


def spaces_of(spec: Spec) -> dict[str, Any]:
    """Returns shapes and dtypes of observations, and shape and bounds (or number) of actions, as JSON values."""
    action = spec.action
    if isinstance(action, DiscreteSpec):
        acts: dict[str, Any] = {"shape": list(action.shape), "num_actions": action.num_actions, "start": action.start}
        acts["dtype"] = action.native_dtype
    else:
        low, high = (None if bound is None else bound.tolist() for bound in (action.low, action.high))
        acts = {"shape": list(action.shape), "low": low, "high": high}
    observation = {key: {"shape": list(array.shape), "dtype": array.dtype} for key, array in spec.observation.items()}
    return {"observation": observation, "action": acts, "num_rewards": spec.num_rewards}


def spec_in(spaces: Mapping[str, Any]) -> Spec:
    """Returns the spec whose spaces `spaces_of` returned."""
    observation, acts = spaces["observation"], spaces["action"]
    if "num_actions" in acts:
        native = acts.get("dtype", "int64")  # not in configs of before
        action: Any = DiscreteSpec(acts["num_actions"], tuple(acts["shape"]), acts["start"], native_dtype=native)
    else:
        low, high = (None if acts[name] is None else np.array(acts[name], np.float32) for name in ("low", "high"))
        action = ArraySpec(tuple(acts["shape"]), "float32", low, high)
    return Spec(
        {key: ArraySpec(tuple(array["shape"]), array["dtype"]) for key, array in observation.items()},
        action,
        num_agents=observation[AGENT_STATE]["shape"][0] if AGENT_STATE in observation else None,
        num_rewards=spaces.get("num_rewards"),
    )


def check_spaces(
    directory: RunDirectory, spec: Spec, keys: Collection[str] | None = None, only: str | None = None
) -> None:
    """Refuses an environment with other spaces than those in which a run's policy was trained, where they are recorded.

    A policy that only acts needs its actions and the observations in `keys`; networks that are trained further read all
    of them, in the same order. `only` names the one thing to compare, such as "order".
    """
    trained, current = read_object(directory.config).get("spaces"), spaces_of(spec)
    if trained is None:
        return
    if keys is None:
        for spaces, other in ((trained, current), (current, trained)):
            spaces["order"] = [key for key in spaces["observation"] if key in other["observation"]]
    else:
        trained, current = (
            {"action": x["action"], "observation": {key: x["observation"].get(key) for key in keys}}
            for x in (trained, current)
        )
    for name, before, now in differences(trained, current):
        same = name == "action.dtype" or (name in ("action.low", "action.high") and same_bounds(before, now))
        if not same and only in (None, name):
            raise TfsacError(
                f"the policy of {directory.path} belongs to another environment: its {name} is {before}, got {now}"
            )
