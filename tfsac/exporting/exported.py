"""Runs an exported policy, a SavedModel or a LiteRT file."""

from __future__ import annotations

import contextlib
import pathlib
import re
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.environments.spaces import ONE_SEQUENCE, batched, unflattened
from tfsac.errors import TfsacError
from tfsac.exporting.litert import INITIAL_STATE, litert_interpreter
from tfsac.training.trained_policy import NO_REWARD
from tfsac.types import PREVIOUS_REWARD, ArraySpec, DiscreteSpec, Spec, input_name
from tfsac.utils.files import glob_safe
from tfsac.utils.machine import use_tensorflow

TFLITE_FILE = "policy.tflite"
SAVED_MODEL_FILE = "saved_model.pb"


class Exported:
    """An exported policy, computed only by TensorFlow or LiteRT.

    A policy with a state keeps it between calls: call `reset` at every episode start, and `observe` after each step if
    it also reads the last reward. Threads may share a policy without a state; use one with a state in a single thread.

    Args:
        path: return value of `export` (or its folder, for a LiteRT file).

    Attributes:
        wanted: names of the inputs.
        fields: names of the state's fields.
        reads: shape and dtype of the observations, by name.

    Example:
        >>> policy = tfsac.load_exported("exported")
        >>> action = policy(observation)
    """

    def __init__(self, path: str | pathlib.Path):
        path = pathlib.Path(path)
        if (path / TFLITE_FILE).is_file():
            path = path / TFLITE_FILE
        self.path, self.lite = path.absolute(), path.suffix == ".tflite" and path.is_file()
        if self.lite:
            interpreter, self.lock = litert_interpreter(path), threading.Lock()
            signatures = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
            self.serve = signatures["serving_default"]
            details, outputs = self.serve.get_input_details(), set(self.serve.get_output_details())
            inputs = {name: (x["shape_signature"].tolist(), x["dtype"]) for name, x in details.items()}
        elif (path / SAVED_MODEL_FILE).is_file():
            use_tensorflow()
            with glob_safe(path) as folder:
                self.loaded = tf.saved_model.load(str(folder))
            signatures = self.loaded.signatures
            self.serve = signatures["serving_default"]
            specs, outputs = self.serve.structured_input_signature[1], set(self.serve.structured_outputs)
            inputs = {name: (x.shape.as_list(), x.dtype.as_numpy_dtype) for name, x in specs.items()}
        else:
            hint = " (a run: export it with `tfsac export`)" if (path / "config.json").is_file() else ""
            raise FileNotFoundError(f"no SavedModel and no .tflite file in {path}{hint}")
        self.sample, self.initial = signatures["sample"], signatures.get(INITIAL_STATE)
        self.input_names, self.fields = set(inputs), outputs - {"action"} if self.initial else set()
        self.actions = outputs - self.fields
        if PREVIOUS_REWARD in inputs and self.fields:  # no observation of a policy with a state has this key
            self.fields |= {PREVIOUS_REWARD}
        self.reads = {name: (tuple(x[0][1:]), np.dtype(x[1])) for name, x in inputs.items() if name not in self.fields}
        self.reset()

    def __reduce__(self) -> Any:
        """Pickles the path and the state; another process loads the policy from the path."""
        return Exported, (self.path,), {"state": self.state}

    def reset(self) -> None:
        """Resets the state at an episode start."""
        self.state: dict[str, np.ndarray] = {}

    def observe(self, reward: Any) -> None:
        """Sets the reward of the last action, a number or `[E]`; most policies do not read it."""
        if self.state and PREVIOUS_REWARD in self.fields:
            self.state[PREVIOUS_REWARD] = np.reshape(np.float32(reward), -1)

    def __call__(self, observation: Any, deterministic: bool = True) -> Any:
        """Returns an action for an observation like `Policy.act`; a LiteRT file returns no samples.

        Several actions are returned in a dict by name, those of a Tuple in a tuple.
        """
        if not deterministic and self.lite:
            raise TfsacError("a LiteRT file takes the noise of its samples as an input; call its signature `sample`")
        by_key = observation if isinstance(observation, Mapping) else {"observation": observation}
        inputs_by_name = {input_name(key): value for key, value in by_key.items()}
        spec = Spec({name: self._spec(name, inputs_by_name.get(name)) for name in self.reads}, DiscreteSpec(1))
        arrays, leading = batched(inputs_by_name, spec)
        rows = len(next(iter(arrays.values())))
        if self.fields and len(leading) > 1:
            raise TfsacError(ONE_SEQUENCE.format(leading))
        if self.fields and not self.state:
            self.state = self._run(self.initial, {"rows": np.int32(rows)})
        if self.fields - self.state.keys():
            raise TfsacError(NO_REWARD)
        if other_sizes := {len(value) for value in self.state.values()} - {rows}:
            raise TfsacError(f"the state has {other_sizes.pop()} environments; call reset before acting in {rows}")
        inputs = {**arrays, **self.state}
        outputs = self._run(
            self.serve if deterministic else self.sample, {name: inputs[name] for name in self.input_names}
        )
        self.state = {name: value for name, value in outputs.items() if name in self.fields}
        if self.actions == {"action"}:
            return unflattened(outputs["action"], leading)
        actions = {name: outputs[name] for name in sorted(self.actions)}
        is_tuple = all(re.fullmatch(r"action(_\d+)+", name) for name in actions)
        return unflattened(tuple_of(actions) if is_tuple else actions, leading)

    def _spec(self, name: str, value: Any) -> ArraySpec:
        """Returns the spec of one array of an observation, with the team size of the given value."""
        shape, dtype = self.reads[name]
        with contextlib.suppress(ValueError, IndexError):  # `batched` rejects it
            if shape[0] in (None, -1):
                shape = (np.shape(value)[-len(shape)], *shape[1:])
        return ArraySpec(shape, dtype.name)

    def _run(self, function: Any, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        if self.lite:
            with self.lock:  # the interpreter has one set of inputs and outputs
                return dict(function(**inputs))
        use_tensorflow()
        return {name: x.numpy() for name, x in function(**{k: tf.constant(x) for k, x in inputs.items()}).items()}


def tuple_of(actions: Mapping[str, np.ndarray], name: str = "action") -> Any:
    """Returns the arrays "action_0", "action_1", ... as a tuple, and "action_1_0", ... as one inside it."""
    if name in actions:
        return actions[name]
    numbers = {int(key.removeprefix(f"{name}_").split("_")[0]) for key in actions if key.startswith(f"{name}_")}
    return tuple(tuple_of(actions, f"{name}_{i}") for i in sorted(numbers))


load_exported = Exported
"""Loads an exported policy from the folder of a SavedModel or LiteRT file; see `Exported`."""
