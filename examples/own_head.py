"""A custom head: a policy with the same standard deviation in all states, trained, resumed and exported in a minute."""

from typing import Any, ClassVar

import keras

import tfsac
from tfsac.networks import Head, Initializers
from tfsac.parameters import SACPolicyHeadParameters, parameters

RUN = "runs/own_head"


@parameters
class ConstantStdHeadParameters(SACPolicyHeadParameters):
    """Parameters of a squashed Gaussian, and `initial_log_std` for all action dimensions, before tanh."""

    initial_log_std: float = -0.5
    path: ClassVar[str] = "own_head:ConstantStdHead"


class Constant(keras.layers.Layer):
    """Trainable values that are the same for every batch entry: features `[B, F]` to `[B, size]`."""

    def __init__(self, size: int, value: float):
        super().__init__(name="log_std")
        self.value = self.add_weight(shape=(size,), initializer=keras.initializers.Constant(value), name="value")

    def call(self, features: Any) -> Any:
        """Returns the values, repeated for each batch entry."""
        return keras.ops.zeros_like(features[:, :1]) + self.value


class ConstantStdHead(Head):
    """The mean depends on the features; the log standard deviation does not."""

    def __init__(self, parameters: ConstantStdHeadParameters, spec: Any, hidden: Initializers, seeds: Any):
        self.mean = keras.layers.Dense(spec.action.shape[0], kernel_initializer=hidden.next(), name="mean")
        self.log_std = Constant(spec.action.shape[0], parameters.initial_log_std)

    def __call__(self, features: Any) -> list[Any]:
        """Connects the head."""
        return [self.mean(features), self.log_std(features)]


changes = {"agent.networks.policy.head_parameters": ConstantStdHeadParameters(), "schedule.improve_steps": 4_000}
preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), changes)


def main() -> None:
    """Trains, resumes and exports."""
    tfsac.train(__file__, RUN)
    longer = tfsac.override(tfsac.load_preset(f"{RUN}/config.json"), {"schedule.improve_steps": 5_000})
    result = tfsac.train(longer, RUN, resume=True)
    path = tfsac.export(tfsac.load_policy(RUN), f"{RUN}/exported")
    print(f"best mean return {result.best_return:.1f}; exported to {path}")


if __name__ == "__main__":
    main()
