"""A head of your own: a policy whose standard deviations are the same in every state, by `python examples/own_head.py`.

The script trains on Pendulum-v1 for about a minute, resumes the run with a longer schedule and exports the policy.
"""

import pathlib
from typing import Any, ClassVar

import keras

import tfsac
from tfsac.networks import PolicyHead
from tfsac.parameters import SACPolicyHeadParameters, parameters

RUN = pathlib.Path("runs/own_head")


@parameters
class ConstantStdHeadParameters(SACPolicyHeadParameters):
    """Those of a squashed Gaussian, and `initial_log_std`: of all actions, before tanh."""

    initial_log_std: float = -0.5
    path: ClassVar[str] = "own_head:ConstantStdHead"


class Constant(keras.layers.Layer):
    """Trained numbers that are the same for every row: features `[B, F]` to `[B, size]`."""

    def __init__(self, size: int, value: float):
        super().__init__(name="log_std")
        self.value = self.add_weight(shape=(size,), initializer=keras.initializers.Constant(value), name="value")

    def call(self, features: Any) -> Any:
        """Returns the numbers, once for each row."""
        return keras.ops.zeros_like(features[:, :1]) + self.value


class ConstantStdHead(PolicyHead):
    """The mean is a layer of the features, the log standard deviation is not."""

    def __init__(self, parameters: ConstantStdHeadParameters, *arguments: Any):
        super().__init__(parameters, *arguments)
        self.log_std = Constant(self.mean.units, parameters.initial_log_std)


changes = {"agent.networks.policy.head_parameters": ConstantStdHeadParameters(), "schedule.improve_steps": 4_000}
preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), changes)


def main() -> None:
    """Trains, resumes and exports."""
    tfsac.train(__file__, RUN)
    longer = tfsac.override(tfsac.load_preset(RUN / "config.json"), {"schedule.improve_steps": 5_000})
    result = tfsac.train(longer, RUN, resume=True)
    path = tfsac.export(tfsac.load_policy(RUN), RUN / "exported")
    print(f"best mean return {result.best_return:.1f}; exported to {path}")


if __name__ == "__main__":
    main()
