"""Parameters of a run, the flags of `tfsac train`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.base import ParameterError, PositiveInt, UnusedIf, UnusedUnless, parameters


@parameters
class RunParameters:
    """How to run a preset. Each field is a flag of `tfsac train`; the first sentence is the flag's help.

    Attributes:
        seed: random seed of weights, noise, sampling and environments.
        strategy: devices that compute updates: "none" leaves them to TensorFlow; "one_device" is the first GPU, or the
            CPU; "mirrored" splits each batch over the GPUs of this machine, or logical devices of a CPU;
            "multi_worker" over the processes of TF_CONFIG.
        num_devices: with `strategy` mirrored, how many; by default all GPUs, or two logical CPU devices without GPUs.
        asynchronous_collection: collect while updates are computed. The acting policy is one call of updates old.
        ray_address: local, auto or HOST:PORT: step the environments in actors on this Ray cluster. They step while
            updates are computed. "local" starts a cluster on this machine, "auto" joins the running one. None steps
            the environments in this process.
        num_actors: with `ray_address`, the number of processes, of one CPU core each, that share the environments.
        actor_steps: with `ray_address`, steps of an actor in each of its environments per message.
        checkpoint_save_steps: environment steps between checkpoints; by default 10 000 for each environment, or a tenth
            of a shorter run, at least 1000.
        num_checkpoints_to_keep: number of newest checkpoints to keep; older ones are deleted.
        skip_damaged_rows: ignored and not a flag; configs of earlier versions contain it.
        stop_at_threshold: stop when an evaluation reaches the preset's `min_reward_threshold`.
        stochastic_evaluation: evaluate a second time, with sampled actions.
        tensorboard: write TensorBoard events to the run's folder during training.
        histograms: with `tensorboard`, also log histograms of the weights of every network.
        updates_between_diagnostics: n, every n-th update reports all its metrics, the others only their losses.
        memory_on_disk: keep the replay memory in a memory-mapped file in the run's folder, for memories larger than
            RAM.
        deterministic: use TensorFlow's deterministic kernels.
        mixed_precision: "bfloat16" multiplies matrices in bfloat16, on CPUs that support it.
        eager: run updates without compiling them, for debugging.
        jit_compile: compile updates with XLA, on one device.
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    strategy: Literal["none", "one_device", "mirrored", "multi_worker"] = "none"
    num_devices: Annotated[PositiveInt | None, UnusedUnless("strategy", "mirrored")] = None
    asynchronous_collection: bool = False
    ray_address: str | None = None
    num_actors: Annotated[PositiveInt, UnusedIf("ray_address", None)] = 1
    actor_steps: Annotated[PositiveInt, UnusedIf("ray_address", None)] = 32
    checkpoint_save_steps: PositiveInt | None = None
    num_checkpoints_to_keep: PositiveInt = 2
    skip_damaged_rows: bool = False
    stop_at_threshold: bool = False
    stochastic_evaluation: bool = False
    tensorboard: bool = True
    histograms: Annotated[bool, UnusedIf("tensorboard", False)] = False
    updates_between_diagnostics: PositiveInt = 20
    memory_on_disk: bool = False
    deterministic: bool = False
    mixed_precision: Literal["none", "bfloat16"] = "none"
    eager: bool = False
    jit_compile: bool = False

    @property
    def affects_results(self) -> dict[str, Any]:
        """Settings, other than the seed, that change the results and so distinguish experiments."""
        names = ["mixed_precision", "asynchronous_collection", "num_actors", "actor_steps"]
        return {"ray": self.ray_address is not None, **{name: getattr(self, name) for name in names}}

    def __post_init__(self) -> None:
        replicated = self.strategy in ("mirrored", "multi_worker")
        if self.jit_compile and (self.eager or replicated or self.mixed_precision != "none"):
            raise ParameterError("jit_compile works only on one device, in float32 and without eager")
        ways = (self.strategy == "multi_worker", self.asynchronous_collection, self.ray_address is not None)
        if sum(ways) > 1:
            raise ParameterError("choose one of strategy='multi_worker', asynchronous_collection and ray_address")
