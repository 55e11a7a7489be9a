"""Parameters of actor-critic with experience replay (ACER), for discrete and continuous actions."""

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
    """Actor-critic with experience replay (ChainerRL; Wang et al. 2017, arXiv 1611.01224), for all action types.

    Attributes:
        t_max: maximum length of a segment in steps: rollouts of every environment, used once while fresh, and replayed
            segments have at most this length. Larger values look further ahead but learn less often.
        n_times_replay: updates from the replay after each rollout.
        replay_times: "fixed" makes exactly this many updates, "poisson" draws the number with this mean (the paper).
        disable_online_update: learn only from replay.
        beta: weight of the policy's entropy; larger values keep the policy more random.
        normalize_loss_by_steps: divide each segment's loss by its number of steps.
        truncation_threshold: c, maximum importance weight of the policy gradient, with bias correction; None does not
            truncate. Smaller values reduce the variance and rely more on Q.
        use_q_opc: advantages from returns without importance weights, instead of Retrace returns.
        use_trust_region: keep the policy close to the average policy.
        trust_region_delta: bound of a step along the gradient of the divergence.
        trust_region_alpha: decay of the average policy's weights, updated after every update.
        statistics_decay: decay per update of the running averages of value, entropy and divergence in the metrics.
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
        """Update rate of the average policy."""
        return 1.0 - self.trust_region_alpha

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns the approximate number of updates in `steps` steps."""
        if not isinstance(steps, EnvironmentSteps):
            return super().updates_in(steps, num_envs)
        updates = self.n_times_replay + (0 if self.disable_online_update else 1)
        return max(1, steps.num_steps // (self.t_max * num_envs) * updates)

    def replays(self, rng: Any) -> int:
        """Returns the number of replay updates after a rollout; `rng` is a NumPy generator for "poisson"."""
        return int(rng.poisson(self.n_times_replay)) if self.replay_times == "poisson" else self.n_times_replay


@parameters
class DiscreteACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for discrete actions.

    Attributes:
        trust_region_statistics: statistics of the policy in which the trust region is measured.
    """

    trust_region_statistics: Annotated[
        Literal["logits", "log_probs", "probabilities"], UnusedIf("use_trust_region", False)
    ] = "logits"


@parameters
class GaussianACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for continuous actions.

    Attributes:
        trust_region_statistics: statistics of the policy in which the trust region is measured: the mean, and the
            variance or standard deviation ("scale").
        num_advantage_samples: n, sampled actions whose mean advantage is subtracted from every advantage (section 5).
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
    """Returns the policy and q networks of discrete actor-critic with experience replay. The target networks of policy
    and trunk form the average policy.

    Args:
        layers: layers of each network, or of the trunk; for images, convolutions first.
        lstm_cells: width of an LSTM after the layers, or None for feedforward networks.
        shared: whether policy and q are single layers after a shared network "trunk".
        activation: activation of the layers.
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
        layers, lstm_cells, shared, activation, q_loss_weight: see `discrete_acer_networks`; for policy and v.
        advantage_layers: layers of the advantage, which reads the action and the observation, or the features of a
            trunk or its own LSTM.
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
    """Returns networks with these heads: each with its own layers, or one layer after a trunk."""
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
    """Parameters shared by discrete and Gaussian actor-critic with experience replay."""

    algorithm: Any
    with_target: ClassVar[tuple[str, ...]] = ("trunk", "policy")
    recurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, network in self.networks.items():
            reject_unused_fields(network, ["replace_mse_with_huber_loss"], "ACER, whose losses are squared errors")
            reads, rule = [*network.input_embedders_parameters], ""
            if "trunk" in self.networks and name != "trunk" and reads != [FEATURES]:
                rule = f"read only the trunk's {FEATURES!r}, got {', '.join(reads)}"
            elif name in self.with_target and self.algorithm.use_trust_region and not network.create_target_network:
                rule = "have create_target_network=True: use_trust_region needs the average policy"
            elif getattr(network.head_parameters, "num_critics", 1) != 1:
                rule = "have num_critics=1"
            if rule:
                raise ParameterError(f"The network {name} of ACER must {rule}")


@parameters
class DiscreteACERAgentParameters(_ACER):
    """Actor-critic with experience replay for discrete actions: "policy" with its average, "q" for every action, and
    an optional "trunk" before both. An update has `batch_size` segments, at least as many as environments.
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
    """Actor-critic with experience replay for continuous actions: "policy" with its average, "v", "advantage", and an
    optional "trunk" before all. An update has `batch_size` segments, at least as many as environments.
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
