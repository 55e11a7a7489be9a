"""Parameters of actor-critic with experience replay (ACER), for discrete and for continuous actions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import (
    ByKind,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveInt,
    UnusedIf,
    parameters,
    reject_unused_fields,
)
from tfsac.parameters.base_agent import AlgorithmParameters, BaseAgentParameters
from tfsac.parameters.memories import EpisodicReplayParameters
from tfsac.parameters.networks import (
    FEATURES,
    Activation,
    CategoricalPolicyHeadParameters,
    Conv2d,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    NetworkParameters,
    QHeadParameters,
    VHeadParameters,
    network_of,
)
from tfsac.parameters.steps import EnvironmentSteps, StepMethod


@parameters
class ACERAlgorithmParameters(AlgorithmParameters):
    """Actor-critic with experience replay (ChainerRL; Wang et al. 2017, arXiv 1611.01224), for all kinds of actions.

    Attributes:
        t_max: the most steps of a segment: a rollout of so many steps of every environment is learned from while it is
            fresh, and segments up to this length are replayed. A larger one looks further ahead, learns less often.
        n_times_replay: updates from the replay after each rollout.
        replay_times: "fixed" replays exactly so often, "poisson" draws the number with this mean, as in the paper.
        disable_online_update: learn from the replay alone.
        beta: weight of the policy's entropy; a larger one keeps the policy more random.
        normalize_loss_by_steps: divide each segment's loss by its number of steps.
        truncation_threshold: c, the largest importance weight of the policy gradient, whose bias is corrected; None
            does not truncate. A smaller one has less variance, and relies more on Q.
        use_q_opc: advantages from returns without importance weights instead of Retrace's.
        use_trust_region: keep each step's policy near the average policy.
        trust_region_delta: how far along the gradient of the divergence a step may go.
        trust_region_alpha: decay of the average policy's weights, which follow after every update.
        statistics_decay: decay per update of the running averages of value, entropy and divergence among the metrics.
    """

    t_max: PositiveInt = 50
    n_times_replay: NonNegativeInt = 8
    replay_times: Annotated[Literal["fixed", "poisson"], UnusedIf("n_times_replay", 0)] = "fixed"
    disable_online_update: bool = False
    beta: NonNegativeFloat = 1e-2
    normalize_loss_by_steps: bool = True
    truncation_threshold: NonNegativeFloat | None = 10.0
    use_q_opc: bool = False
    use_trust_region: bool = True
    trust_region_delta: Annotated[NonNegativeFloat, UnusedIf("use_trust_region", False)] = 1.0
    trust_region_alpha: Fraction = 0.99
    statistics_decay: Fraction = 0.999
    use_deterministic_for_evaluation: bool = False
    num_updates_between_policy_updates: ClassVar[int] = 1

    @property
    def rate_for_copying_weights_to_target(self) -> float:
        """The average policy's step towards the policy."""
        return 1.0 - self.trust_region_alpha

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns about how many updates so many steps make."""
        if not isinstance(steps, EnvironmentSteps):
            return super().updates_in(steps, num_envs)
        updates = self.n_times_replay + (0 if self.disable_online_update else 1)
        return max(1, steps.num_steps // (self.t_max * num_envs) * updates)

    def replays(self, rng: Any) -> int:
        """Returns how many updates from the replay follow a rollout; a NumPy generator draws a random number."""
        return int(rng.poisson(self.n_times_replay)) if self.replay_times == "poisson" else self.n_times_replay


@parameters
class DiscreteACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for discrete actions.

    Attributes:
        trust_region_statistics: of the policy, in which the trust region is measured.
    """

    trust_region_statistics: Annotated[
        Literal["logits", "log_probs", "probabilities"], UnusedIf("use_trust_region", False)
    ] = "logits"


@parameters
class GaussianACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for continuous actions.

    Attributes:
        trust_region_statistics: of the policy, in which the trust region is measured: the mean, and variance or
            standard deviation ("scale").
        num_advantage_samples: n, actions whose mean advantage is subtracted from every advantage (section 5).
    """

    trust_region_statistics: Annotated[Literal["variance", "scale"], UnusedIf("use_trust_region", False)] = "variance"
    num_advantage_samples: PositiveInt = 5


def discrete_acer_networks(
    layers: tuple[int | Conv2d, ...] = (100, 100),
    lstm_cells: int | None = None,
    shared: bool = False,
    activation: Activation = "relu",
    q_loss_weight: float = 0.5,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of discrete actor-critic with experience replay. Policy and trunk have target
    networks, which are the average policy.

    Args:
        layers: of each network, or of the trunk; convolutions first, for images.
        lstm_cells: width of an LSTM after the layers, or None for feedforward networks.
        shared: policy and q are one layer each, after a common network "trunk".
        activation: of the layers.
        q_loss_weight: factor of the squared errors.
        **trained: see `soft_actor_critic_networks`.
    """
    q = QHeadParameters((), loss_weight=q_loss_weight, num_critics=1)
    heads = {"policy": CategoricalPolicyHeadParameters(), "q": q}
    return _acer_networks(heads, layers, lstm_cells, shared, activation, trained)


def gaussian_acer_networks(
    layers: tuple[int | Conv2d, ...] = (100, 100),
    advantage_layers: tuple[int, ...] = (25, 25),
    lstm_cells: int | None = None,
    shared: bool = False,
    activation: Activation = "relu",
    q_loss_weight: float = 0.5,
    bound_mean: bool = True,
    covariance: Literal["diagonal", "spherical"] = "diagonal",
    min_variance: float = 1e-6,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy, v and advantage networks of actor-critic with experience replay for continuous actions.

    Args:
        layers, lstm_cells, shared, activation, q_loss_weight: see `discrete_acer_networks`; of policy and v.
        advantage_layers: of the advantage, which reads the action and the observation, or the features of a trunk or of
            its own LSTM.
        bound_mean, covariance, min_variance: see `GaussianPolicyHeadParameters`.
        **trained: see `soft_actor_critic_networks`.
    """
    activated: dict[str, Any] = {"activation_function": activation} if advantage_layers else {}
    advantage = QHeadParameters(tuple(advantage_layers), loss_weight=q_loss_weight, num_critics=1, **activated)
    policy = GaussianPolicyHeadParameters(bound_mean, covariance, min_variance)
    heads = {"policy": policy, "v": VHeadParameters(loss_weight=q_loss_weight), "advantage": advantage}
    return _acer_networks(heads, layers, lstm_cells, shared, activation, trained)


def _acer_networks(
    heads: Mapping[str, Any],
    layers: tuple[int | Conv2d, ...],
    lstm_cells: int | None,
    shared: bool,
    activation: Activation,
    trained: Mapping[str, Any],
) -> dict[str, NetworkParameters]:
    """Returns networks of these heads: each with layers of its own, or one layer after a trunk."""
    convolutions = tuple(itertools.takewhile(lambda layer: isinstance(layer, Conv2d), layers))
    dense: Any = tuple(layers)[len(convolutions) :]

    def network(name: str, head: Any) -> NetworkParameters:
        fields = {"create_target_network": name in ("trunk", "policy"), **trained}
        if shared and name != "trunk":
            return network_of(head, key=FEATURES, **fields)
        # The advantage also reads the action, so its layers belong to the head.
        hidden = () if name == "advantage" else dense
        return network_of(head, convolutions, hidden, activation=activation, lstm_cells=lstm_cells, **fields)

    trunk = {"trunk": FeaturesHeadParameters()} if shared else {}
    return {name: network(name, head) for name, head in {**trunk, **heads}.items()}


class _ACER(BaseAgentParameters):
    """What the parameters of discrete and Gaussian actor-critic with experience replay share."""

    algorithm: Any
    with_target: ClassVar[tuple[str, ...]] = ("trunk", "policy")
    recurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, network in self.networks.items():
            reject_unused_fields(network, ["replace_mse_with_huber_loss"], "ACER, whose losses are squared errors")
            reads, rule = [*network.input_embedders_parameters], ""
            if "trunk" in self.networks and name != "trunk" and reads != [FEATURES]:
                rule = f"read the trunk's {FEATURES!r} alone, got {', '.join(reads)}"
            elif name in self.with_target and self.algorithm.use_trust_region and not network.create_target_network:
                rule = "have create_target_network=True, the average policy of use_trust_region"
            elif getattr(network.head_parameters, "num_critics", 1) != 1:
                rule = "have num_critics=1"
            if rule:
                raise ParameterError(f"The network {name} of ACER must {rule}")


@parameters
class DiscreteACERAgentParameters(_ACER):
    """Actor-critic with experience replay for discrete actions: "policy" with its average, "q" of every action, and
    perhaps a "trunk" before both. An update has `batch_size` segments, at least as many as environments.
    """

    algorithm: DiscreteACERAlgorithmParameters = DiscreteACERAlgorithmParameters()
    exploration: None = None
    memory: Annotated[EpisodicReplayParameters, ByKind()] = EpisodicReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_acer_networks)
    kind: Literal["discrete_acer"] = "discrete_acer"
    path: ClassVar[str] = "tfsac.agents.acer:DiscreteACERAgent"
    discrete_actions: ClassVar[bool | None] = True
    heads: ClassVar[dict[str, type]] = {
        "trunk": FeaturesHeadParameters,
        "policy": CategoricalPolicyHeadParameters,
        "q": QHeadParameters,
    }


@parameters
class GaussianACERAgentParameters(_ACER):
    """Actor-critic with experience replay for continuous actions: "policy" with its average, "v", "advantage", and
    perhaps a "trunk" before all. An update has `batch_size` segments, at least as many as environments.
    """

    algorithm: GaussianACERAlgorithmParameters = GaussianACERAlgorithmParameters()
    exploration: None = None
    memory: Annotated[EpisodicReplayParameters, ByKind()] = EpisodicReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=gaussian_acer_networks)
    kind: Literal["gaussian_acer"] = "gaussian_acer"
    path: ClassVar[str] = "tfsac.agents.acer:GaussianACERAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, type]] = {
        "trunk": FeaturesHeadParameters,
        "policy": GaussianPolicyHeadParameters,
        "v": VHeadParameters,
        "advantage": QHeadParameters,
    }
