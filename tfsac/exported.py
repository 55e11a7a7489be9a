"""Running an exported policy, a SavedModel or a LiteRT file."""

from __future__ import annotations

import contextlib
import pathlib
import shlex
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac import argument_checks
from tfsac.environments.spaces import ONE_SEQUENCE, batched, unflattened
from tfsac.files import neutral
from tfsac.litert import INITIAL_STATE, litert_interpreter
from tfsac.machine import use_tensorflow
from tfsac.types import ArraySpec, DiscreteSpec, Spec, input_name

TFLITE_FILE = "policy.tflite"
SAVED_MODEL_FILE = "saved_model.pb"
OF_AN_EXPORT = {TFLITE_FILE, SAVED_MODEL_FILE, "fingerprint.pb", "variables", "assets"}


def is_export(path: pathlib.Path) -> bool:
    """Returns whether a folder holds an exported policy of either format."""
    return (path / TFLITE_FILE).is_file() or (path / SAVED_MODEL_FILE).is_file()


def is_export_alone(path: pathlib.Path) -> bool:
    """Returns whether a folder holds an exported policy and nothing else, as a model card or a server's folder may."""
    return is_export(path) and {part.name for part in path.iterdir()} <= OF_AN_EXPORT


class Exported:
    """The actions of an exported policy, with nothing but TensorFlow or LiteRT behind it.

    A policy with a state remembers it from one call to the next: call `reset` where an episode begins. Threads may
    share a policy without a state; one with a state belongs to one thread.

    Args:
        path: what `export` returned (or its folder, for a LiteRT file).

    Raises:
        FileNotFoundError: no exported policy there.
        ImportError: a LiteRT file without the package that runs it.
        RuntimeError: a SavedModel, in a process that was forked from one that used TensorFlow.
    """

    def __init__(self, path: str | pathlib.Path):
        path = argument_checks.path("path", path, "the path of an export, a str or a pathlib.Path")
        if (path / TFLITE_FILE).is_file():
            path = path / TFLITE_FILE
        self.path, self.lite = path.absolute(), path.suffix == ".tflite" and path.is_file()
        if self.lite:
            interpreter, self.lock = litert_interpreter(path), threading.Lock()
            signatures = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
            serve = signatures["serving_default"]
            found = {name: (x["shape_signature"].tolist(), x["dtype"]) for name, x in serve.get_input_details().items()}
            outputs = set(serve.get_output_details())
        elif (path / SAVED_MODEL_FILE).is_file():
            use_tensorflow()
            with neutral(path) as folder:
                self.loaded = tf.saved_model.load(str(folder))
            signatures = self.loaded.signatures
            serve = signatures["serving_default"]
            inputs = serve.structured_input_signature[1].items()
            found = {name: (x.shape.as_list(), x.dtype.as_numpy_dtype) for name, x in inputs}
            outputs = set(serve.structured_outputs)
        else:
            run, policy = (path / "config.json").is_file(), path / "policy"
            command = f"tfsac export {shlex.quote(f'--run_dir={path}')} --out=FOLDER"
            made = policy if is_export(policy) else f"made by {command}"
            raise FileNotFoundError(
                "An exported policy is a SavedModel folder or a .tflite file."
                f"{f' That of this run is {made}.' if run else ''} Received: {path}"
            )
        self.serve, self.sample, self.initial = serve, signatures["sample"], signatures.get(INITIAL_STATE)
        self.wanted, self.fields = set(found), outputs - {"action"}  # inputs, and those that are of the state
        self.reads = {
            name: (tuple(shape[1:]), np.dtype(x)) for name, (shape, x) in found.items() if name not in outputs
        }
        self.reset()

    def __reduce__(self) -> Any:
        """Is pickled as its path: another process loads it from there."""
        return Exported, (self.path,), {"state": self.state}

    def reset(self) -> None:
        """Forgets the state."""
        self.state: dict[str, np.ndarray] = {}

    def __call__(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Returns an action for an observation, with the same leading dimensions, as `Policy.act` does.

        Args:
            observation: raw, an array or by key; keys that the policy does not read are left out.
            deterministic: the policy's mode; a SavedModel also returns samples.

        Raises:
            TypeError: deterministic is no flag.
            ValueError: missing keys, other shapes, numbers that are not finite, a mask that holds more than 0 and 1 or
                has no valid action; another number of environments than in the call before where the
                policy has a state; samples of a LiteRT file.
        """
        argument_checks.flag("deterministic", deterministic)
        if not deterministic and self.lite:
            raise ValueError(
                "The samples of a LiteRT file take their noise as an input; call its signature `sample`, or load the "
                f"SavedModel. Received: deterministic={deterministic}"
            )
        by_key = observation if isinstance(observation, Mapping) else {"observation": observation}
        named = {input_name(key): value for key, value in by_key.items()}
        if missing := self.reads.keys() - named.keys():
            raise ValueError(f"This policy also reads {', '.join(sorted(missing))}. Received: {sorted(by_key)}")
        spec = Spec({name: self._spec(name, named[name]) for name in self.reads}, DiscreteSpec(1))
        given, leading = batched(named, spec)
        rows = len(next(iter(given.values())))
        if self.fields and len(leading) > 1:
            raise ValueError(ONE_SEQUENCE.format(leading))
        if self.fields and not self.state:
            self.state = self._run(self.initial, {"rows": np.int32(rows)})
        if known := {len(value) for value in self.state.values()} - {rows}:
            raise ValueError(
                f"The policy state is of {known.pop()} environments; call reset to start with others. Received: {rows}"
            )
        function = self.serve if deterministic else self.sample
        after = self._run(function, {name: {**given, **self.state}[name] for name in self.wanted})
        action = after.pop("action")
        self.state = after
        return unflattened(action, leading)

    def _spec(self, name: str, value: Any) -> ArraySpec:
        """Returns the spec of a part of an observation, with as many agents as it is of."""
        shape, dtype = self.reads[name]
        with contextlib.suppress(ValueError, IndexError):  # `batched` refuses it
            if shape[0] in (None, -1):
                shape = (np.shape(value)[-len(shape)], *shape[1:])
        return ArraySpec(shape, dtype.name)

    def _run(self, function: Any, given: dict[str, Any]) -> dict[str, np.ndarray]:
        if self.lite:
            with self.lock:  # the interpreter has one set of inputs and outputs
                return dict(function(**given))
        use_tensorflow()
        return {name: x.numpy() for name, x in function(**{name: tf.constant(x) for name, x in given.items()}).items()}


def load_exported(path: str | pathlib.Path) -> Exported:
    """Loads an exported policy; see `Exported`."""
    return Exported(path)
