"""Parameters of a run, which are the flags of `tfsac train`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.base import ParameterError, PositiveInt, UnusedIf, UnusedUnless, parameters


@parameters
class RunParameters:
    """How a preset is run, as opposed to what is run. Each field is a flag of `tfsac train`, described by its first
    sentence.

    Attributes:
        seed: of weights, noise, sampling and environments.
        strategy: devices that compute updates: "none" leaves them to TensorFlow; "one_device" is the first GPU, or the
            CPU; "mirrored" divides each batch among the GPUs of this machine, or logical devices of a CPU;
            "multi_worker" among the processes of TF_CONFIG.
        num_devices: with `strategy` mirrored, how many; by default all GPUs, or two logical devices of a machine
            without.
        asynchronous_collection: collect while updates are computed. The policy that acts is one call of updates old.
        ray_address: local, auto or HOST:PORT: environments are stepped by actors on this Ray cluster. They step while
            updates are computed. "local" starts a cluster on this machine, "auto" joins the one that runs here. None
            steps them in this process.
        num_actors: with `ray_address`, processes of one CPU core among which the environments are divided.
        actor_steps: with `ray_address`, environment steps that an actor takes for one message.
        checkpoint_save_steps: environment steps between checkpoints; without it 10 000 for each environment, or a tenth
            of a shorter run, at least 1000.
        num_checkpoints_to_keep: checkpoints that are kept, the newest; older ones are deleted.
        skip_damaged_rows: ignored, and no flag; runs of earlier versions have it in their config.
        stop_at_threshold: end when an evaluation reaches the preset's `min_reward_threshold`.
        stochastic_evaluation: evaluate a second time, with sampled actions.
        tensorboard: write TensorBoard events while the run trains, into its folder.
        histograms: with `tensorboard`, also the weights of every network.
        updates_between_diagnostics: n, every n-th update reports all its metrics and the others their losses alone.
        memory_on_disk: keep the replay memory in a memory-mapped file in the run's folder, for memories larger than
            RAM.
        deterministic: use TensorFlow's deterministic kernels.
        mixed_precision: "bfloat16" multiplies matrices in it, on CPUs that can.
        eager: run updates without compiling them, to debug.
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
        """What changes which numbers are learned, but for the seed: by it, too, experiments differ."""
        names = ["mixed_precision", "asynchronous_collection", "num_actors", "actor_steps"]
        return {"ray": self.ray_address is not None, **{name: getattr(self, name) for name in names}}

    def __post_init__(self) -> None:
        replicated = self.strategy in ("mirrored", "multi_worker")
        if self.jit_compile and (self.eager or replicated or self.mixed_precision != "none"):
            raise ParameterError("jit_compile works on one device, in float32 and without eager")
        ways = (self.strategy == "multi_worker", self.asynchronous_collection, self.ray_address is not None)
        if sum(ways) > 1:
            raise ParameterError("choose one of strategy='multi_worker', asynchronous_collection and ray_address")
