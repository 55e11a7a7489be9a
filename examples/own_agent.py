"""A custom agent: twin soft actor-critic whose policy avoids actions on which the critics disagree.

`python examples/own_agent.py` trains it on Pendulum-v1 for about a minute, resumes the run with a longer schedule and
exports the policy. It also works on the command line: `tfsac train --preset=examples/own_agent.py --seed=1`.
"""

import pathlib
from typing import ClassVar

import tensorflow as tf
from pydantic import Field

import tfsac
from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.parameters import (
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    Preset,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    parameters,
    twin_soft_actor_critic_networks,
)
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import Transition

RUN = pathlib.Path("runs/own_agent")


@parameters
class CautiousAlgorithmParameters(TwinSoftActorCriticAlgorithmParameters):
    """Parameters of twin soft actor-critic, and `caution`, the policy's penalty for disagreement of the critics."""

    caution: float = 0.2


@parameters
class CautiousAgentParameters(TwinSoftActorCriticAgentParameters):
    """`path` names the agent's class; tfsac sets `kind` to "own_agent:CautiousAgentParameters"."""

    algorithm: CautiousAlgorithmParameters = Field(default_factory=CautiousAlgorithmParameters)
    path: ClassVar[str] = "own_agent:CautiousAgent"


class CautiousAgent(TwinSoftActorCriticAgent):
    """Minimises `alpha log pi(a|s) - min_i Q_i(s, a) + caution * (max_i Q_i(s, a) - min_i Q_i(s, a))`."""

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, SquashedGaussian, tf.Tensor, tf.Tensor]:
        """Adds the disagreement to the loss of each batch entry; gradients, optimizer steps and order do not change."""
        loss_B, policy, log_prob_B, q_BN = super().policy_loss(batch)
        disagreement_B = tf.reduce_max(q_BN, axis=-1) - tf.reduce_min(q_BN, axis=-1)
        return loss_B + self.algorithm.caution * disagreement_B, policy, log_prob_B, q_BN


preset = Preset(
    agent=CautiousAgentParameters(
        memory=ExperienceReplayParameters(max_size=100_000),
        networks=twin_soft_actor_critic_networks(layers=(128, 128), learning_rate=1e-3, batch_size=128),
    ),
    environment=EnvironmentParameters(level="Pendulum-v1"),
    schedule=ScheduleParameters(
        heatup_steps=EnvironmentSteps(1_000),
        improve_steps=EnvironmentSteps(5_000),
        steps_between_evaluation_periods=EnvironmentSteps(1_000),
    ),
)


def main() -> None:
    """Trains, resumes and exports."""
    tfsac.train(__file__, RUN)
    longer = tfsac.override(tfsac.load_preset(RUN / "config.json"), {"schedule.improve_steps": 6_000})
    result = tfsac.train(longer, RUN, resume=True)
    policy = tfsac.load_policy(RUN, critics=True)
    path = tfsac.export(policy, RUN / "exported", values=True)
    print(f"best mean return {result.best_return:.1f}; exported with its values to {path}")


if __name__ == "__main__":
    main()
