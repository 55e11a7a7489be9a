"""Parameters of temporally abstract actor-critic (TAAC, TaacL, TaacQ)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import (
    ByKind,
    PositiveFloat,
    PositiveInt,
    Rising,
    UnitInterval,
    UnusedIf,
    UnusedUnless,
    parameters,
)
from tfsac.parameters.base_agent import BaseAgentParameters, OffPolicyAlgorithmParameters
from tfsac.parameters.memories import SequenceReplayParameters
from tfsac.parameters.networks import NetworkParameters, QHeadParameters, SACPolicyHeadParameters, network_of, with_q

Probability = Annotated[float, Field(gt=0, lt=1)]


@parameters
class TemporallyAbstractActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Temporally abstract actor-critic (ALF; Yu, Xu and Zhang 2021, arXiv 2104.06521).

    At each step the policy proposes a new trajectory of actions, and a second policy decides whether to switch to it.

    Attributes:
        trajectory: how a kept trajectory continues: "constant" repeats the action (TAAC), "linear" changes the action
            at a constant rate (TaacL), "quadratic" with constant acceleration (TaacQ).
        inverse_mode: the policy outputs the new action, and the derivatives follow from it and the previous action;
            otherwise it outputs the highest derivative. Constant trajectories have no derivatives.
        max_repeat_steps: maximum length of a trajectory in steps, in collection and evaluation, or None.
        randomize_first_state_tau: start training episodes with a uniform previous trajectory instead of zeros.
        b1_advantage_clipping: (low, high) bounds of the advantage of switching in the switch probability, each None for
            no bound; or None. A low bound of 0 makes switching at least as likely as keeping.
        compare_through: "sampled" is ALF's operator; "unbiased" averages over the switch policy at steps that kept.
        epsilon_greedy: probability that a deterministic evaluation samples the proposal and, independently, the switch.
        initial_alpha: initial value of both temperatures, of the switch and of the proposal.
        alpha_learning_rate: learning rate of the temperatures' Adam optimizers.
        min_prob: sets the target entropies: probability of the rarer of switching and keeping, and density per action
            dimension relative to the range; one number for both or (switch, action). The switch's must be below 0.5.
        target_entropy: in nats, instead of `min_prob`: one number for both or (switch, action).
        reward_weights: weight of each reward in the policy's objective, for environments with several; None for ones.
        reward_discounts: gamma of each reward instead of `discount`, or None.
        n_step: always 1; the targets look up to `agent.memory.sequence_length` steps ahead.
    """

    n_step: Literal[1] = 1
    discount: Annotated[UnitInterval, UnusedUnless("reward_discounts", None)] = 0.99
    trajectory: Literal["constant", "linear", "quadratic"] = "constant"
    inverse_mode: Annotated[bool, UnusedIf("trajectory", "constant")] = True
    max_repeat_steps: PositiveInt | None = None
    randomize_first_state_tau: bool = False
    b1_advantage_clipping: Annotated[tuple[float | None, float | None], Rising] | None = None
    compare_through: Literal["sampled", "unbiased"] = "sampled"
    epsilon_greedy: UnitInterval = 0.0
    initial_alpha: PositiveFloat = 1.0
    alpha_learning_rate: PositiveFloat = 3e-4
    min_prob: Annotated[Probability | tuple[Probability, Probability], UnusedUnless("target_entropy", None)] = 0.1
    target_entropy: float | tuple[float, float] | None = None
    reward_weights: tuple[float, ...] | None = None
    reward_discounts: tuple[UnitInterval, ...] | None = None


def temporally_abstract_networks(
    layers: tuple[int, ...] = (256, 256), num_critics: int = 2, init_w: float = 0.003, **trained: Any
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of temporally abstract actor-critic.

    The policy also reads the previous trajectory, through one linear layer per field to the width of the embedding.

    Args:
        layers: widths of the hidden layers of each network; both read raw observations.
        num_critics: independent Q functions.
        init_w: bound of the critics' initial output weights.
        **trained: see `soft_actor_critic_networks`.
    """
    q = QHeadParameters(tuple(layers), num_critics=num_critics, init_w=init_w)
    return with_q(network_of(SACPolicyHeadParameters(), layers=layers, **trained), q, **trained)


@parameters
class TemporallyAbstractActorCriticAgentParameters(BaseAgentParameters):
    """Temporally abstract actor-critic, TAAC, TaacL and TaacQ: "policy" and "q" with its target network. A batch has
    `batch_size` sequences.
    """

    algorithm: TemporallyAbstractActorCriticAlgorithmParameters = TemporallyAbstractActorCriticAlgorithmParameters()
    exploration: None = None
    memory: Annotated[SequenceReplayParameters, ByKind()] = SequenceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=temporally_abstract_networks)
    kind: Literal["temporally_abstract_actor_critic"] = "temporally_abstract_actor_critic"
    path: ClassVar[str] = "tfsac.agents.taac:TemporallyAbstractActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, type]] = {"policy": SACPolicyHeadParameters, "q": QHeadParameters}
