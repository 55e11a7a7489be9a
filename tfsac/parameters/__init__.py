"""Validated parameter objects in Coach's vocabulary. Importing them does not import TensorFlow."""

from tfsac.parameters.acer import (
    ACERAlgorithmParameters,
    DiscreteACERAgentParameters,
    DiscreteACERAlgorithmParameters,
    GaussianACERAgentParameters,
    GaussianACERAlgorithmParameters,
)
from tfsac.parameters.agent_networks import (
    discrete_acer_networks,
    discrete_soft_actor_critic_networks,
    ensemble_soft_actor_critic_networks,
    gaussian_acer_networks,
    networks_made_by,
    soft_actor_critic_networks,
    temporally_abstract_networks,
    twin_soft_actor_critic_networks,
)
from tfsac.parameters.base import (
    ParameterError,
    from_json,
    parameters,
    to_json,
)
from tfsac.parameters.base_agent import (
    AdditiveNoiseParameters,
    AlgorithmParameters,
    BaseAgentParameters,
    EpsilonGreedyParameters,
    GaussianExplorationParameters,
    NoiseRepetitionParameters,
    OffPolicyAlgorithmParameters,
    discount_of_episodes,
)
from tfsac.parameters.ensemble_options import (
    ATOM_BOUND,
    reject_layers_of_custom_models,
)
from tfsac.parameters.experiment import (
    BY_ENV_FN,
    AgentParameters,
    AtariPreprocessingParameters,
    EnvironmentParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    ReturnScalingParameters,
    RunParameters,
    ScheduleParameters,
)
from tfsac.parameters.layers import (
    ACTIVATIONS,
    BodyParameters,
    Conv2d,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    MiddlewareScheme,
    NormalizationParameters,
    ResidualMiddlewareParameters,
    normalizes_batches,
)
from tfsac.parameters.memories import (
    DemonstratedReplayParameters,
    EpisodicReplayParameters,
    ExperienceReplayParameters,
    MemoryParameters,
    PriorDataReplayParameters,
    PrioritizedExperienceReplayParameters,
    SequenceReplayParameters,
    SQILExperienceReplayParameters,
)
from tfsac.parameters.networks import (
    FEATURES,
    LOG_STD_BOUNDS,
    MADE_BY,
    OPTIMIZERS,
    CategoricalPolicyHeadParameters,
    CategoricalValueParameters,
    DiscreteQHeadParameters,
    EnsembleQHeadParameters,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    HeadParameters,
    LearningRateDecayParameters,
    NetworkParameters,
    QHeadParameters,
    QuantileValueParameters,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    TrajectoryQHeadParameters,
    TwinQHeadParameters,
    VHeadParameters,
)
from tfsac.parameters.overrides import (
    for_level,
    override,
    parse_assignment,
)
from tfsac.parameters.soft_actor_critic import (
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.parameters.steps import (
    EnvironmentEpisodes,
    EnvironmentSteps,
    StepMethod,
    TrainingSteps,
)
from tfsac.parameters.taac import (
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
)
from tfsac.parameters.temperatures import (
    LEAST_PER_DIMENSION,
    MOST_PER_DIMENSION,
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    FixedAlphaParameters,
    LearnedAlphaParameters,
    TemperatureParameters,
    gaussian_entropy,
)
from tfsac.parameters.user_classes import (
    ClassParameters,
    class_of,
    is_of_tfsac,
)
