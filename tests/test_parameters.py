"""Parameter objects: defaults, JSON, overrides, and what each mistake is answered with."""

import dataclasses
import inspect
import json
import pathlib
import re

import golden_tools
import numpy as np
import pytest

import tfsac
from tfsac.catalog import load_preset
from tfsac.files import differences
from tfsac.parameters import (
    AdditiveNoiseParameters,
    AtariPreprocessingParameters,
    AutoAlphaParameters,
    Conv2d,
    DiscreteACERAgentParameters,
    DiscreteACERAlgorithmParameters,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EmbedderScheme,
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    EpsilonGreedyParameters,
    ExperienceReplayParameters,
    FCMiddlewareParameters,
    FilterParameters,
    FixedAlphaParameters,
    GaussianACERAlgorithmParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareScheme,
    NetworkParameters,
    ParameterError,
    Preset,
    PresetValidationParameters,
    PriorDataReplayParameters,
    PrioritizedExperienceReplayParameters,
    QHeadParameters,
    ReturnScalingParameters,
    RunParameters,
    SACPolicyHeadParameters,
    ScheduleParameters,
    SequenceReplayParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    SQILExperienceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    TrainingSteps,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    VHeadParameters,
    discount_of_episodes,
    discrete_acer_networks,
    discrete_soft_actor_critic_networks,
    for_level,
    from_json,
    gaussian_acer_networks,
    override,
    parse_assignment,
    soft_actor_critic_networks,
    temporally_abstract_networks,
    to_json,
    twin_soft_actor_critic_networks,
)
from tfsac.parameters.other_names import _ARGUMENTS, _PATHS, meant_paths

Algorithm = SoftActorCriticAlgorithmParameters
Agent = SoftActorCriticAgentParameters
Twin = TwinSoftActorCriticAlgorithmParameters
Discrete = DiscreteSoftActorCriticAgentParameters
Switching = TemporallyAbstractActorCriticAgentParameters
Trajectories = TemporallyAbstractActorCriticAlgorithmParameters
NETWORKS = soft_actor_critic_networks((8, 8))


def network(**fields):
    return NetworkParameters(VHeadParameters(), **fields)


def networks(name, **fields):
    return {**NETWORKS, name: dataclasses.replace(NETWORKS[name], **fields)}


def rich_preset():
    """A preset in which most fields differ from their defaults."""
    camera = InputEmbedderParameters((Conv2d(8, 4, 2), 16), activation_function="tanh")
    body = {
        "input_embedders_parameters": {"camera": camera, "speed": InputEmbedderParameters(EmbedderScheme.Shallow)},
        "embedding_merger_type": "concat",
        "middleware_parameters": FCMiddlewareParameters(MiddlewareScheme.Deep),
        "optimizer_type": "RMSProp",
        "learning_rate_decay_rate": 0.5,
        "learning_rate_decay_steps": 100,
        "clip_gradients": 40.0,
        "gradients_clipping_method": "value",
        "batch_size": 32,
    }
    return Preset(
        agent=Agent(
            algorithm=Algorithm(
                num_consecutive_playing_steps=EnvironmentEpisodes(2),
                num_consecutive_training_steps=7,
                num_steps_between_copying_online_weights_to_target=TrainingSteps(3),
            ),
            exploration=AdditiveNoiseParameters(0.25),
            memory=ExperienceReplayParameters(500),
            networks={
                "policy": NetworkParameters(SACPolicyHeadParameters(initializer="orthogonal"), **body),
                "v": NetworkParameters(VHeadParameters(loss_weight=0.5), create_target_network=True, **body),
                "q": NetworkParameters(QHeadParameters((64, 32)), replace_mse_with_huber_loss=True, **body),
            },
        ),
        environment=EnvironmentParameters(
            "Hopper-v5",
            num_envs=3,
            vectorization="subprocess",
            max_episode_steps=200,
            kwargs={"ctrl_cost_weight": 0.5},
            visible_entries=(3, 0, 1),
            filters=FilterParameters(5.0, (-1.0, 10.0), observation_normalization=True),
        ),
        schedule=ScheduleParameters(heatup_steps=EnvironmentEpisodes(4), improve_steps=TrainingSteps(77)),
        validation=PresetValidationParameters(100.0, 50),
        levels={"Walker2d-v5": {"validation.min_reward_threshold": 3.0}},
    )


def discrete_preset():
    """A preset of discrete actions in which what only such presets have differs from the defaults."""
    temperature = DiscreteAutoAlphaParameters(0.3, 1e-2, target_entropy_ratio=0.4, log_space=False)
    image = (Conv2d(8, 4, 2), 16)
    return Preset(
        agent=Discrete(
            DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature),
            EpsilonGreedyParameters(0.5, 0.05, 77, "linear"),
            SQILExperienceReplayParameters("expert.npz", 3, 9000),
            discrete_soft_actor_critic_networks((8,), twin_critic=False, embedder=image),
            shared_encoder=True,
        ),
        environment=EnvironmentParameters("ALE/Pong-v5", atari=AtariPreprocessingParameters(2, 42, 3, 0)),
    )


def switching_preset(heatup_steps=None, max_size=90_000, num_envs=2, **algorithm):
    """A preset of trajectories in which what only such presets have differs from the defaults."""
    given = {
        "trajectory": "quadratic",
        "inverse_mode": False,
        "max_repeat_steps": 7,
        "randomize_first_state_tau": True,
        "b1_advantage_clipping": (None, 0.5),
        "compare_through": "unbiased",
        "epsilon_greedy": 0.1,
        "initial_alpha": 0.5,
        "alpha_learning_rate": 1e-3,
        "target_entropy": (0.3, -2.0),
        "reward_weights": (1.0, -0.5),
        "reward_discounts": (0.9, 0.5),
    }
    networks = temporally_abstract_networks((8,), num_critics=3, init_w=0.1, batch_size=4)
    return Preset(
        agent=Switching(
            Trajectories(**{**given, **algorithm}), memory=SequenceReplayParameters(max_size, 6), networks=networks
        ),
        environment=EnvironmentParameters(num_envs=num_envs),
        schedule=ScheduleParameters(heatup_steps=heatup_steps or EnvironmentSteps(12)),
    )


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_algorithm_defaults_are_the_documented_ones():
    algorithm = Algorithm()
    assert algorithm.discount == 0.99
    assert algorithm.rate_for_copying_weights_to_target == 0.005
    assert algorithm.num_steps_between_copying_online_weights_to_target == EnvironmentSteps(1)
    assert algorithm.num_consecutive_playing_steps == EnvironmentSteps(1)
    assert algorithm.num_consecutive_training_steps == 1
    assert algorithm.use_deterministic_for_evaluation is True
    assert (algorithm.n_step, algorithm.ignore_done, algorithm.num_updates_between_policy_updates) == (1, False, 1)


@pytest.mark.parametrize("name", ["policy", "v", "q"])
def test_every_network_trains_with_the_papers_adam(name):
    parameters = Agent().networks[name]
    assert (parameters.optimizer_type, parameters.learning_rate, parameters.optimizer_epsilon) == ("Adam", 3e-4, 1e-8)
    assert (parameters.adam_optimizer_beta1, parameters.adam_optimizer_beta2) == (0.9, 0.999)
    assert parameters.batch_size == 256
    assert (parameters.clip_gradients, parameters.l2_regularization) == (None, 0.0)
    assert parameters.learning_rate_decay_steps == 0


def test_every_network_has_two_hidden_layers_of_256_relu():
    made = Agent().networks
    for name in ("policy", "v"):
        embedder = made[name].input_embedders_parameters["observation"]
        middleware = made[name].middleware_parameters
        assert [*embedder.scheme, *middleware.scheme] == [256, 256]
        assert embedder.activation_function == middleware.activation_function == "relu"
    assert made["q"].input_embedders_parameters["observation"].scheme is EmbedderScheme.Empty
    assert made["q"].head_parameters.network_layers_sizes == (256, 256)
    assert made["q"].head_parameters.activation_function == "relu"


def test_only_v_has_a_target_network():
    assert {name: made.create_target_network for name, made in Agent().networks.items()} == {
        "policy": False,
        "v": True,
        "q": False,
    }


def test_schedule_memory_and_exploration_defaults():
    preset = Preset()
    assert preset.schedule.heatup_steps == EnvironmentSteps(10_000)
    assert preset.agent.memory.max_size == 1_000_000
    assert preset.agent.exploration is None
    assert preset.agent.batch_size == 256


def test_network_helper_spreads_widths_over_embedder_and_middleware():
    made = soft_actor_critic_networks((10, 20, 30), learning_rate=0.5)
    assert made["v"].input_embedders_parameters["observation"].scheme == (10,)
    assert made["v"].middleware_parameters.scheme == (20, 30)
    assert made["q"].head_parameters.network_layers_sizes == (10, 20, 30)
    assert {parameters.learning_rate for parameters in made.values()} == {0.5}


def test_network_helper_lets_a_caller_turn_the_slow_copy_off():
    assert not soft_actor_critic_networks(create_target_network=False)["v"].create_target_network


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset",
    [Preset(), rich_preset(), discrete_preset(), switching_preset()],
    ids=["default", "rich", "discrete", "switching"],
)
def test_json_round_trip_is_exact(preset):
    text = json.dumps(to_json(preset))
    assert from_json(Preset, text) == preset


def test_json_writes_step_units_as_in_python():
    tree = to_json(rich_preset())
    assert tree["schedule"]["improve_steps"] == "TrainingSteps(77)"
    assert tree["agent"]["algorithm"]["num_consecutive_playing_steps"] == "EnvironmentEpisodes(2)"


def test_json_keeps_layers_and_convolutions():
    tree = to_json(rich_preset())["agent"]["networks"]["policy"]["input_embedders_parameters"]
    assert tree["camera"]["scheme"] == [{"num_filters": 8, "kernel_size": 4, "stride": 2, "padding": "valid"}, 16]
    assert tree["speed"]["scheme"] == "Shallow"


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"agnet": {}}', "Did you mean 'agent'?"),
        (
            '{"agent": {"kind": "soft_actor_critic", "algorithm": {"discont": 0.9}}}',
            "SoftActorCriticAlgorithmParameters has no parameter 'discont'. Did you mean 'discount'?",
        ),
        ('{"environment": {"filters": {"reward_scale_factor": 5.0}}}', "Did you mean 'reward_rescale_factor'?"),
        ('{"schedule": {"improve_steps": "Steps(3)"}}', "schedule.improve_steps: expected EnvironmentSteps(n)"),
        (
            '{"agent": {"kind": "soft_actor_critic", "algorithm": {"discount": "0.9"}}}',
            "agent.algorithm.discount: Input should be a valid number",
        ),
        (
            '{"agent": {"kind": "soft_actor"}}',
            "Preset.agent: Input should be an object of kind 'soft_actor_critic', 'twin_soft_actor_critic', "
            "'discrete_soft_actor_critic', 'temporally_abstract_actor_critic', 'discrete_acer' or 'gaussian_acer'",
        ),
    ],
)
def test_bad_json_is_refused_with_the_place_of_the_mistake(text, words):
    with pytest.raises(ParameterError, match=re.escape(words)) as error:
        from_json(Preset, text)
    assert "Received: " in str(error.value)


def test_unknown_field_of_a_network_in_json_names_the_nearest():
    tree = to_json(Preset())
    tree["agent"]["networks"]["policy"]["learnin_rate"] = 1.0
    with pytest.raises(ParameterError, match=r"NetworkParameters has no parameter 'learnin_rate'.* 'learning_rate'"):
        from_json(Preset, json.dumps(tree))


# -- mistakes ----------------------------------------------------------------------------------------------------------

PERIOD = "num_steps_between_copying_online_weights_to_target"
UNITS = "expected EnvironmentSteps(n), EnvironmentEpisodes(n), TrainingSteps(n), or a whole number of environment steps"
MISTAKES = {
    # unknown names
    "unknown name": (lambda: Algorithm(discont=0.9), "Did you mean 'discount'?", "discont=0.9"),
    "another library's name": (lambda: Twin(gamma=0.9), "Did you mean 'discount'?", "gamma=0.9"),
    "unknown name of a network": (lambda: network(batchsize=7), "Did you mean 'batch_size'?", "batchsize=7"),
    "unknown name of a preset": (
        lambda: Preset(agnet=1),
        "Preset has no parameter 'agnet'. Did you mean 'agent'?",
        "agnet=1",
    ),
    "a name of another class": (
        lambda: RunParameters(num_envs=8),
        "has no parameter 'num_envs'. It belongs to EnvironmentParameters. Its parameters are seed,",
        "num_envs=8",
    ),
    "unknown name without a near one": (
        lambda: ExperienceReplayParameters(zzz=1),
        "Its parameters are max_size, kind.",
        "zzz=1",
    ),
    "too many values": (
        lambda: ExperienceReplayParameters(1, "uniform", 2),
        "has only the parameters max_size, kind",
        "2 more",
    ),
    "missing value": (lambda: Conv2d(32, 1), "Conv2d needs the parameter 'stride'", "nothing for it"),
    # wrong types
    "text for number": (lambda: Algorithm(discount="0.9"), "discount: Input should be a valid number", "'0.9'"),
    "bool for number": (lambda: Algorithm(discount=True), "discount: Input should be a valid number", "True"),
    "bool for int": (lambda: ExperienceReplayParameters(True), "max_size: Input should be a valid integer", "True"),
    "float for int": (
        lambda: ExperienceReplayParameters(1000.5),
        "max_size: Input should be a valid integer",
        "1000.5",
    ),
    "bool for steps": (lambda: Algorithm(**{PERIOD: True}), UNITS, "True"),
    "float for steps": (lambda: ScheduleParameters(heatup_steps=2.5), f"heatup_steps: {UNITS}", "2.5"),
    "misspelt unit": (lambda: Algorithm(**{PERIOD: "EnvironmentStep(1)"}), UNITS, "'EnvironmentStep(1)'"),
    "int for bool": (lambda: network(replace_mse_with_huber_loss=1), "Input should be a valid boolean", "1"),
    "text for bool": (lambda: FilterParameters(observation_normalization="yes"), "valid boolean", "'yes'"),
    "number for text": (lambda: EnvironmentParameters(3), "level: Input should be a valid string", "3"),
    "number for object": (lambda: Preset(environment=3), "instance of EnvironmentParameters", "3"),
    "number for one of several objects": (lambda: Preset(agent=3), "Preset.agent: Input should be an object", "3"),
    "text for head": (lambda: NetworkParameters("v"), "head_parameters: Input should be", "'v'"),
    # out of range
    "not a number": (lambda: Algorithm(discount=float("nan")), "discount: Input should be a finite number", "nan"),
    "infinite": (lambda: network(learning_rate=float("inf")), "learning_rate: Input should be a finite number", "inf"),
    "discount above one": (lambda: Algorithm(discount=1.1), "less than or equal to 1", "1.1"),
    "rate of zero": (lambda: Algorithm(rate_for_copying_weights_to_target=0), "greater than 0", "0"),
    "rate above one": (lambda: Algorithm(rate_for_copying_weights_to_target=1.5), "less than or equal to 1", "1.5"),
    "negative memory": (lambda: ExperienceReplayParameters(-1), "max_size: Input should be greater than 0", "-1"),
    "negative steps": (lambda: EnvironmentSteps(-1), "num_steps: Input should be greater than or equal to 0", "-1"),
    "negative noise": (
        lambda: AdditiveNoiseParameters(-0.1),
        "noise_std: Input should be greater than or equal",
        "-0.1",
    ),
    "negative layer": (lambda: QHeadParameters((64, -1)), "network_layers_sizes.1: Input should be greater", "-1"),
    "no updates": (lambda: Algorithm(num_consecutive_training_steps=0), "greater than 0", "0"),
    "no environments": (lambda: EnvironmentParameters(num_envs=0), "num_envs: Input should be greater than 0", "0"),
    "no time": (lambda: EnvironmentParameters(max_episode_steps=0), "max_episode_steps: Input should be greater", "0"),
    "nothing visible": (lambda: EnvironmentParameters(visible_entries=()), "one entry or more", "()"),
    "negative entry": (
        lambda: EnvironmentParameters(visible_entries=(0, -1)),
        "visible_entries.1: Input should be greater",
        "-1",
    ),
    "repeated entry": (lambda: EnvironmentParameters(visible_entries=(2, 0, 2)), "each once", "(2, 0, 2)"),
    "no batch": (lambda: network(batch_size=0), "batch_size: Input should be greater than 0", "0"),
    "learning rate of zero": (
        lambda: network(learning_rate=0.0),
        "learning_rate: Input should be greater than 0",
        "0.0",
    ),
    "beta of one": (
        lambda: network(adam_optimizer_beta2=1.0),
        "adam_optimizer_beta2: Input should be less than 1",
        "1.0",
    ),
    "negative weight": (lambda: VHeadParameters(-1), "loss_weight: Input should be greater than or equal to 0", "-1"),
    "reversed clipping": (lambda: FilterParameters(reward_clipping_range=(1, -1)), "(low, high)", "(1.0, -1.0)"),
    "empty clipping": (lambda: FilterParameters(reward_clipping_range=(0.0, 0.0)), "(low, high)", "(0.0, 0.0)"),
    # not one of the choices
    "optimizer": (
        lambda: network(optimizer_type="adam"),
        "optimizer_type: there is none of this name. Did you mean 'Adam'?",
        "'adam'",
    ),
    "merger": (lambda: network(embedding_merger_type="add"), "Input should be 'concat' or 'sum'", "'add'"),
    "initializer": (
        lambda: network(initializer="glorot"),
        "'xavier', 'he', 'orthogonal', 'normalized_columns', 'lecun_normal' or 'fan_in_uniform'",
        "'glorot'",
    ),
    "clipping method": (lambda: network(gradients_clipping_method="all"), "'global_norm', 'norm' or 'value'", "'all'"),
    "activation": (
        lambda: InputEmbedderParameters(activation_function="rely"),
        "activation_function: there is none of this name. Did you mean 'relu'?",
        "'rely'",
    ),
    "vectorization": (lambda: EnvironmentParameters(vectorization="async"), "'sync' or 'subprocess'", "'async'"),
    "embedder scheme": (lambda: InputEmbedderParameters("Huge"), "'Medium'", "'Huge'"),
    "middleware scheme": (lambda: FCMiddlewareParameters("Huge"), "'Medium'", "'Huge'"),
    "negative layer of an embedder": (lambda: InputEmbedderParameters((64, -1)), "greater than 0", "-1"),
    "bool for a layer": (lambda: FCMiddlewareParameters((64, True)), "Input should be a valid integer", "True"),
    # parts that do not fit together
    "period not whole": (
        lambda: Agent(Algorithm(num_consecutive_playing_steps=EnvironmentSteps(3))),
        "must be a whole number >= 1; TrainingSteps(1) copies after every update.",
        "EnvironmentSteps(num_steps=3)",
    ),
    "period of zero": (
        lambda: Agent(Algorithm(**{PERIOD: EnvironmentSteps(0)})),
        "must be a whole number >= 1",
        "1 updates every EnvironmentSteps(num_steps=1)",
    ),
    "period in episodes": (
        lambda: Agent(Algorithm(**{PERIOD: EnvironmentEpisodes(1)})),
        f"{PERIOD} counts EnvironmentSteps or TrainingSteps",
        "EnvironmentEpisodes(num_steps=1) with EnvironmentSteps(num_steps=1)",
    ),
    "period in steps, play in episodes": (
        lambda: Agent(Algorithm(num_consecutive_playing_steps=EnvironmentEpisodes(1))),
        "only TrainingSteps when num_consecutive_playing_steps counts episodes",
        "EnvironmentSteps(num_steps=1) with EnvironmentEpisodes(num_steps=1)",
    ),
    "play counts updates": (
        lambda: Algorithm(num_consecutive_playing_steps=TrainingSteps(3)),
        "num_consecutive_playing_steps is at least",
        "TrainingSteps(num_steps=3)",
    ),
    "no play": (
        lambda: Algorithm(num_consecutive_playing_steps=EnvironmentSteps(0)),
        "num_consecutive_playing_steps is at least",
        "EnvironmentSteps(num_steps=0)",
    ),
    "heat-up counts updates": (
        lambda: ScheduleParameters(heatup_steps=TrainingSteps(3)),
        "heatup_steps counts environment steps or episodes",
        "TrainingSteps(num_steps=3)",
    ),
    "evaluation counts updates": (
        lambda: ScheduleParameters(evaluation_steps=TrainingSteps(3)),
        "evaluation_steps counts environment steps or episodes",
        "TrainingSteps(num_steps=3)",
    ),
    "no training": (
        lambda: ScheduleParameters(improve_steps=0),
        "improve_steps is at least 1",
        "EnvironmentSteps(num_steps=0)",
    ),
    "batch larger than heat-up": (
        lambda: Preset(schedule=ScheduleParameters(heatup_steps=100)),
        "batch_size must not be larger than what the warm-up collects",
        "batch_size=256, heatup_steps=EnvironmentSteps(num_steps=100)",
    ),
    "batch larger than memory": (
        lambda: Preset(agent=Agent(memory=ExperienceReplayParameters(100))),
        "The memory must hold at least one batch",
        "max_size=100, batch_size=256",
    ),
    "more environments than memory": (
        lambda: Preset(
            environment=EnvironmentParameters(num_envs=400), agent=Agent(memory=ExperienceReplayParameters(300))
        ),
        "The memory must hold a step of every environment",
        "max_size=300, num_envs=400",
    ),
    "unequal batches": (
        lambda: Agent(networks=networks("q", batch_size=7)),
        "equal batch_size",
        "{'policy': 256, 'v': 256, 'q': 7}",
    ),
    "wrong head": (
        lambda: Agent(networks={**NETWORKS, "q": NETWORKS["v"]}),
        "The head of network 'q' is of kind 'q'",
        str(VHeadParameters()),
    ),
    "misspelt network": (
        lambda: Agent(networks={**NETWORKS, "polisy": NETWORKS["q"]}),
        "Did you mean 'policy'?",
        "'polisy'",
    ),
    "missing network": (
        lambda: Agent(networks={"q": NETWORKS["q"], "v": NETWORKS["v"]}),
        "needs a network 'policy'",
        "['q', 'v']",
    ),
    "target of q": (
        lambda: Agent(networks=networks("q", create_target_network=True)),
        "Only v has a target network",
        "create_target_network=True for 'q'",
    ),
    "nothing to read": (
        lambda: network(input_embedders_parameters={}),
        "reads at least one observation key",
        "input_embedders_parameters={}",
    ),
    "huber for a policy": (
        lambda: NetworkParameters(SACPolicyHeadParameters(), replace_mse_with_huber_loss=True),
        "not to a policy",
        "replace_mse_with_huber_loss=True",
    ),
    # discrete actions, imitation, games
    "certain beyond one": (lambda: EpsilonGreedyParameters(1.1), "initial_epsilon: Input should be less", "1.1"),
    "negative epsilon": (lambda: EpsilonGreedyParameters(final_epsilon=-0.1), "final_epsilon: Input should be", "-0.1"),
    "no decay": (lambda: EpsilonGreedyParameters(decay_steps=0), "decay_steps: Input should be greater than 0", "0"),
    "unknown decay": (lambda: EpsilonGreedyParameters(decay="cosine"), "'linear' or 'exponential'", "'cosine'"),
    "imitate nobody": (
        lambda: SQILExperienceReplayParameters(),
        "needs the parameter 'demonstrations'",
        "nothing for it",
    ),
    "imitate a file without a name": (
        lambda: SQILExperienceReplayParameters(""),
        "demonstrations: String should",
        "''",
    ),
    "no episodes to imitate": (
        lambda: SQILExperienceReplayParameters("x.npz", num_episodes=0),
        "num_episodes: Input should be greater than 0",
        "0",
    ),
    "no own transitions": (
        lambda: SQILExperienceReplayParameters("x.npz", max_size=0),
        "max_size: Input should be greater than 0",
        "0",
    ),
    "half of an odd batch": (
        lambda: Agent(
            memory=SQILExperienceReplayParameters("x.npz"), networks=soft_actor_critic_networks(batch_size=7)
        ),
        "Half of every batch is demonstrated, so batch_size is even",
        "7",
    ),
    "ratio of zero": (lambda: DiscreteAutoAlphaParameters(target_entropy_ratio=0.0), "greater than 0", "0.0"),
    "ratio of one": (lambda: DiscreteAutoAlphaParameters(target_entropy_ratio=1.0), "between 0 and 1", "1.0"),
    "two targets": (
        lambda: DiscreteAutoAlphaParameters(target_entropy=0.3, target_entropy_ratio=0.5),
        "given by target_entropy or by target_entropy_ratio",
        "target_entropy=0.3, target_entropy_ratio=0.5",
    ),
    "ratio of real actions": (
        lambda: AutoAlphaParameters(target_entropy_ratio=0.5),
        "has no parameter 'target_entropy_ratio'",
        "=0.5",
    ),
    "no frames": (
        lambda: AtariPreprocessingParameters(frame_skip=0),
        "frame_skip: Input should be greater than 0",
        "0",
    ),
    "no screen": (
        lambda: AtariPreprocessingParameters(screen_size=0),
        "screen_size: Input should be greater than 0",
        "0",
    ),
    "no images": (
        lambda: AtariPreprocessingParameters(num_stacked_frames=0),
        "num_stacked_frames: Input should be",
        "0",
    ),
    "fewer than no actions": (lambda: AtariPreprocessingParameters(noop_max=-1), "noop_max: Input should be", "-1"),
    "nothing to share": (lambda: Discrete(shared_encoder=True), "needs embedders with layers to share", "Empty"),
    "unequal shared encoders": (
        lambda: Discrete(
            networks={
                **discrete_soft_actor_critic_networks(embedder=(8,)),
                "q": discrete_soft_actor_critic_networks(embedder=(9,))["q"],
            },
            shared_encoder=True,
        ),
        "With shared_encoder the networks policy and q have equal input_embedders_parameters",
        "scheme=(9,)",
    ),
    "noise on choices": (
        lambda: Discrete(exploration=AdditiveNoiseParameters()),
        "EpsilonGreedyParameters",
        "AdditiveNoise",
    ),
    "choices on noise": (
        lambda: Agent(exploration=EpsilonGreedyParameters()),
        "exploration: Input should be an object of kind 'additive_noise' or 'noise_repetition'",
        "EpsilonGreedy",
    ),
    # trajectories
    "unknown trajectory": (
        lambda: Trajectories(trajectory="cubic"),
        "trajectory: Input should be 'constant', 'linear' or 'quadratic'",
        "'cubic'",
    ),
    "unknown operator": (
        lambda: Trajectories(compare_through="biased"),
        "compare_through: Input should be 'sampled' or 'unbiased'",
        "'biased'",
    ),
    "derivatives of a constant": (
        lambda: Trajectories(inverse_mode=False),
        "belongs to linear and quadratic trajectories",
        "inverse_mode=False with trajectory='constant'",
    ),
    "no repeats": (lambda: Trajectories(max_repeat_steps=0), "max_repeat_steps: Input should be greater than 0", "0"),
    "several steps": (
        lambda: Trajectories(n_step=3),
        "n_step is 1; agent.memory.sequence_length says how many",
        "n_step=3",
    ),
    "no reward to maximise": (
        lambda: Trajectories(reward_weights=(0.0, 0.0)),
        "At least one of reward_weights is not 0",
        "(0.0, 0.0)",
    ),
    "no probability": (lambda: Trajectories(min_prob=0.0), "min_prob: Input should be greater than 0", "0.0"),
    "certain": (lambda: Trajectories(min_prob=1.0), "min_prob: Input should be less than 1", "1.0"),
    "more than certain": (lambda: Trajectories(min_prob=(0.1, 1.5)), "min_prob.1: Input should be less than 1", "1.5"),
    "choices that are alike": (
        lambda: Trajectories(min_prob=0.5),
        "so min_prob of the switch is another number",
        "min_prob=0.5",
    ),
    "choices alone that are alike": (
        lambda: Trajectories(min_prob=(0.5, 0.1)),
        "so min_prob of the switch is another number",
        "min_prob=(0.5, 0.1)",
    ),
    "negative draws": (
        lambda: Trajectories(epsilon_greedy=-0.1),
        "epsilon_greedy: Input should be greater than or equal",
        "-0.1",
    ),
    "cold from the beginning": (
        lambda: Trajectories(initial_alpha=0.0),
        "initial_alpha: Input should be greater than 0",
        "0.0",
    ),
    "clipping the wrong way round": (
        lambda: Trajectories(b1_advantage_clipping=(1.0, 0.0)),
        "is (low, high) with low < high",
        "(1.0, 0.0)",
    ),
    "clipping to a point": (lambda: Trajectories(b1_advantage_clipping=(0.5, 0.5)), "with low < high", "(0.5, 0.5)"),
    "a reward that grows": (
        lambda: Trajectories(reward_discounts=(0.9, 1.1)),
        "reward_discounts.1: Input should be less than or equal to 1",
        "1.1",
    ),
    "stretches of one row": (
        lambda: SequenceReplayParameters(100, 1),
        "sequence_length is at least 2",
        "sequence_length=1, max_size=100",
    ),
    "stretches beyond the memory": (
        lambda: SequenceReplayParameters(5, 6),
        "at most what the memory holds",
        "sequence_length=6, max_size=5",
    ),
    "stretches beyond an environment's part": (
        lambda: switching_preset(max_size=11),
        "hold sequence_length steps of every environment",
        "max_size=11, num_envs=2, sequence_length=6",
    ),
    "heat-up below a stretch": (
        lambda: switching_preset(EnvironmentSteps(11)),
        "The warm-up must collect sequence_length steps of every environment",
        "heatup_steps=EnvironmentSteps(num_steps=11), num_envs=2, sequence_length=6",
    ),
    "single rows for stretches": (
        lambda: Switching(memory=ExperienceReplayParameters()),
        "memory: Input should be an instance of SequenceReplayParameters",
        "ExperienceReplay",
    ),
    "demonstrated stretches": (
        lambda: Switching(memory=SQILExperienceReplayParameters("x.npz")),
        "memory: Input should be an instance of SequenceReplayParameters",
        "SQIL",
    ),
    "stretches for single rows": (lambda: Agent(memory=SequenceReplayParameters()), "memory: ", "SequenceReplay"),
    "noise on trajectories": (
        lambda: Switching(exploration=AdditiveNoiseParameters()),
        "exploration: Input should be None",
        "AdditiveNoise",
    ),
    "other critics": (
        lambda: Switching(networks={**temporally_abstract_networks(), "q": NetworkParameters(QHeadParameters())}),
        "The head of network 'q' is of kind 'trajectory_q'",
        "QHeadParameters",
    ),
    # update orders, and what they were called
    "order of Spinning Up": (
        lambda: Twin(update_order="spinning_up"),
        "'simultaneous' (Spinning Up's)",
        "'spinning_up'",
    ),
    "order of DI-engine": (lambda: Twin(update_order="di_engine"), "'critic_first' (DI-engine's)", "'di_engine'"),
    "listed order": (
        lambda: Twin(update_order=(("policy", "critic"), "target")),
        "or 'policy_first'.",
        "(('policy', 'critic'), 'target')",
    ),
    "misspelt order": (lambda: Twin(update_order="critic_frist"), "Did you mean 'critic_first'?", "'critic_frist'"),
    "number for an order": (lambda: Twin(update_order=1), "or 'policy_first'", "1"),
    "decay without steps": (
        lambda: network(learning_rate_decay_rate=0.5),
        "needs learning_rate_decay_steps >= 1",
        "learning_rate_decay_steps=0",
    ),
}


@pytest.mark.parametrize("make, words, received", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_with_words_that_help(make, words, received):
    with pytest.raises(ParameterError) as error:
        make()
    message, _, tail = str(error.value).rpartition("Received: ")
    assert words in message
    assert tail and received in tail


def test_parameters_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Algorithm().discount = 0.5


# -- what has no effect ------------------------------------------------------------------------------------------------

DISCRETE_ACER, GAUSSIAN_ACER = DiscreteACERAlgorithmParameters, GaussianACERAlgorithmParameters
Prioritized = PrioritizedExperienceReplayParameters
TWIN = TwinSoftActorCriticAgentParameters


def imitating(**filters):
    environment = EnvironmentParameters(filters=FilterParameters(**filters))
    return Preset(agent=Agent(memory=SQILExperienceReplayParameters("x.npz")), environment=environment)


# How a field is set, the field, the one that leaves it without effect; and how both are set so that it has one.
WITHOUT_EFFECT = {
    "betas of RMSProp": (
        lambda: network(optimizer_type="RMSProp", adam_optimizer_beta1=0.5), "adam_optimizer_beta1", "RMSProp",
        lambda: network(adam_optimizer_beta1=0.5),
    ),
    "decay of Adam": (
        lambda: network(rms_prop_optimizer_decay=0.5), "rms_prop_optimizer_decay", "Adam",
        lambda: network(optimizer_type="RMSProp", rms_prop_optimizer_decay=0.5),
    ),
    "nesterov": (
        lambda: network(optimizer_type="SGD", optimizer_kwargs={"nesterov": True}), "nesterov", "momentum",
        lambda: network(optimizer_type="SGD", optimizer_kwargs={"nesterov": True, "momentum": 0.9}),
    ),
    "steps of no decay": (
        lambda: network(learning_rate_decay_steps=10), "learning_rate_decay_steps", "learning_rate_decay_rate",
        lambda: network(learning_rate_decay_steps=10, learning_rate_decay_rate=0.5),
    ),
    "rate of a linear decay": (
        lambda: network(learning_rate_decay_type="linear", learning_rate_decay_steps=10, learning_rate_decay_rate=0.5),
        "learning_rate_decay_rate", "linear", lambda: network(learning_rate_decay_type="linear", learning_rate_decay_steps=10),
    ),
    "clipping method": (
        lambda: network(gradients_clipping_method="norm"), "gradients_clipping_method", "clip_gradients",
        lambda: network(gradients_clipping_method="norm", clip_gradients=1.0),
    ),
    "activation of no middleware": (
        lambda: FCMiddlewareParameters("Empty", "tanh"), "activation_function", "scheme", lambda: FCMiddlewareParameters((8,), "tanh"),
    ),
    "activation of no layers": (
        lambda: FCMiddlewareParameters((), "tanh"), "activation_function", "scheme", lambda: FCMiddlewareParameters((8,), "tanh"),
    ),
    "activation before an LSTM": (
        lambda: LSTMMiddlewareParameters(8, activation_function="tanh"), "activation_function", "scheme",
        lambda: LSTMMiddlewareParameters(8, (8,), "tanh"),
    ),
    "activation of a head": (
        lambda: QHeadParameters((), "tanh"), "activation_function", "network_layers_sizes", lambda: QHeadParameters((8,), "tanh"),
    ),
    "two initializers": (
        lambda: SACPolicyHeadParameters(initializer="he", init_w=0.1), "initializer", "init_w", lambda: SACPolicyHeadParameters(initializer="he"),
    ),
    "clipping of raw observations": (
        lambda: FilterParameters(observation_clipping=5.0), "observation_clipping", "observation_normalization",
        lambda: FilterParameters(observation_clipping=5.0, observation_normalization=True),
    ),
    "scaled imitation": (lambda: imitating(reward_rescale_factor=2.0), "reward_rescale_factor", "sqil", imitating),
    "clipped imitation": (lambda: imitating(reward_clipping_range=(0.0, 1.0)), "reward_clipping_range", "sqil", imitating),
    "normalised imitation": (
        lambda: imitating(reward_normalization=True), "reward_normalization", "sqil", lambda: imitating(observation_normalization=True)
    ),
    "imitation scaled by returns": (
        lambda: imitating(return_scaling=ReturnScalingParameters()), "return_scaling", "sqil", lambda: imitating(observation_normalization=True)
    ),
    "deadline of no threshold": (
        lambda: PresetValidationParameters(None, 50), "max_episodes_to_achieve_reward", "min_reward_threshold",
        lambda: PresetValidationParameters(0.0, 50),
    ),
    "two target entropies": (
        lambda: Trajectories(min_prob=0.2, target_entropy=-1.0), "min_prob", "target_entropy", lambda: Trajectories(target_entropy=-1.0),
    ),
    "two discounts": (
        lambda: Trajectories(discount=0.9, reward_discounts=(0.9, 0.5)), "discount", "reward_discounts", lambda: Trajectories(discount=0.9),
    ),
    "trust region that is off": (
        lambda: DISCRETE_ACER(use_trust_region=False, trust_region_delta=0.1), "trust_region_delta", "use_trust_region",
        lambda: DISCRETE_ACER(trust_region_delta=0.1),
    ),
    "statistics of a trust region that is off": (
        lambda: GAUSSIAN_ACER(use_trust_region=False, trust_region_statistics="scale"), "trust_region_statistics", "use_trust_region",
        lambda: GAUSSIAN_ACER(trust_region_statistics="scale"),
    ),
    "random number of no replays": (
        lambda: DISCRETE_ACER(n_times_replay=0, replay_times="poisson"), "replay_times", "n_times_replay",
        lambda: DISCRETE_ACER(n_times_replay=1, replay_times="poisson"),
    ),
    "no average policy": (
        lambda: DiscreteACERAgentParameters(
            DISCRETE_ACER(use_trust_region=False, trust_region_alpha=0.5), networks=discrete_acer_networks(create_target_network=False)
        ),
        "trust_region_alpha", "create_target_network", lambda: DiscreteACERAgentParameters(DISCRETE_ACER(trust_region_alpha=0.5)),
    ),
    "no target network": (
        lambda: TWIN(Twin(rate_for_copying_weights_to_target=0.1), networks=twin_soft_actor_critic_networks(create_target_network=False)),
        "rate_for_copying_weights_to_target", "create_target_network", lambda: TWIN(Twin(rate_for_copying_weights_to_target=0.1)),
    ),
    "weights of uniform samples": (lambda: Prioritized(alpha=0.0, beta=0.5), "beta", "alpha", lambda: Prioritized(beta=0.5)),
    "priorities of uniform samples": (lambda: Prioritized(alpha=0.0, epsilon=0.1), "epsilon", "alpha", lambda: Prioritized(epsilon=0.1)),
    "growth of a full beta": (
        lambda: Prioritized(beta=1.0, beta_anneal_updates=9), "beta_anneal_updates", "beta=1", lambda: Prioritized(beta_anneal_updates=9),
    ),
    "decay between equals": (
        lambda: EpsilonGreedyParameters(0.1, 0.1, 77), "decay_steps", "final_epsilon", lambda: EpsilonGreedyParameters(0.2, 0.1, 77),
    ),
    "histograms": (lambda: RunParameters(histograms=True, tensorboard=False), "histograms", "tensorboard", lambda: RunParameters(histograms=True)),
}  # fmt: skip


@pytest.mark.parametrize("ineffective, name, other, effective", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT.keys())
def test_a_field_that_another_one_leaves_without_effect_is_refused_with_both_names(ineffective, name, other, effective):
    with pytest.raises(ParameterError) as error:
        ineffective()
    message, _, received = str(error.value).rpartition("Received: ")
    assert name in message and other in message and received
    effective()


def test_a_value_that_is_the_default_is_never_refused():
    filters = FilterParameters(observation_clipping=10.0, observation_normalization=False)
    assert filters == FilterParameters()
    DISCRETE_ACER(use_trust_region=False, trust_region_delta=1.0, trust_region_statistics="logits")
    network(
        optimizer_type="RMSProp",
        adam_optimizer_beta1=0.9,
        gradients_clipping_method="global_norm",
        learning_rate_decay_steps=0,
    )


@pytest.mark.parametrize("layers, cells", [((), 8), ((), None), ((8,), 8)])
def test_the_functions_that_make_networks_give_an_activation_only_to_layers(layers, cells):
    for networks in (
        discrete_acer_networks(layers, cells, activation="elu"),
        gaussian_acer_networks(layers, (), cells, activation="elu"),
    ):
        made = networks["policy"].middleware_parameters
        assert made.activation_function == ("elu" if layers else "relu")
        assert networks["policy"].input_embedders_parameters["observation"].activation_function == "elu"


# -- target period -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "period, playing, updates, expected",
    [
        (EnvironmentSteps(1), EnvironmentSteps(1), 1, 1),
        (EnvironmentSteps(1000), EnvironmentSteps(1), 1, 1000),
        (EnvironmentSteps(1), EnvironmentSteps(1), 4, 4),
        (EnvironmentSteps(50), EnvironmentSteps(50), 50, 50),
        (EnvironmentSteps(50), EnvironmentSteps(50), 1, 1),
        (EnvironmentSteps(3), EnvironmentSteps(2), 4, 6),
        (TrainingSteps(3), EnvironmentSteps(7), 5, 3),
        (TrainingSteps(3), EnvironmentEpisodes(1), 100, 3),
    ],
)
def test_target_period_becomes_a_number_of_updates(period, playing, updates, expected):
    algorithm = Algorithm(
        num_steps_between_copying_online_weights_to_target=period,
        num_consecutive_playing_steps=playing,
        num_consecutive_training_steps=updates,
    )
    assert algorithm.updates_between_target_copies() == expected


# -- overrides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, path, value",
    [
        ("a.b=0.98", "a.b", 0.98),
        ("a.b=1e-3", "a.b", 0.001),
        ("a=true", "a", True),
        ("a=null", "a", None),
        ("a=[64, 64]", "a", [64, 64]),
        ("a=5_000", "a", 5000),
        ("a=Hopper-v5", "a", "Hopper-v5"),
        ("a=TrainingSteps(5)", "a", "TrainingSteps(5)"),
        ("a=x=y", "a", "x=y"),
        ("a=", "a", ""),
        ('a="run_1_2"', "a", "run_1_2"),
        ("a=run_1_2", "a", "run_1_2"),
    ],
)
def test_an_assignment_is_split_into_path_and_json_value(text, path, value):
    assert parse_assignment(text) == (path, value)


@pytest.mark.parametrize("text", ["a.b", "", "=3"])
def test_an_assignment_without_path_or_equals_sign_is_refused(text):
    with pytest.raises(ParameterError, match=re.escape(f"is written path=value. Received: {text!r}")):
        parse_assignment(text)


def changed(text, preset=None):
    return override(preset or Preset(), dict([parse_assignment(text)]))


def test_a_number_keeps_the_unit_of_steps_and_replaces_any_other_text():
    preset = override(load_preset("pendulum_sac"), {"environment.kwargs.task": "reach(easy)"})
    changed = override(preset, {"environment.kwargs.task": 7, "schedule.heatup_steps": 800})
    assert changed.environment.kwargs == {"task": 7} and changed.schedule.heatup_steps == EnvironmentSteps(800)


def test_tuples_in_kwargs_are_lists_from_the_start_as_a_config_brings_them_back():
    given = EnvironmentParameters(kwargs={"size": (3, 4), "more": {"a": [(1, 2)]}})
    assert given.kwargs == {"size": [3, 4], "more": {"a": [[1, 2]]}}
    assert from_json(EnvironmentParameters, json.dumps(to_json(given))) == given


def test_none_is_another_value_than_parameters_that_are_all_none():
    plain = to_json(load_preset("pendulum_sac"))
    scaled = to_json(override(load_preset("pendulum_sac"), {"environment.filters.return_scaling": {}}))
    assert set(scaled["environment"]["filters"]["return_scaling"].values()) == {None}
    name = "environment.filters.return_scaling"
    assert differences(plain, scaled) == [(name, None, {})] and differences(scaled, plain) == [(name, {}, None)]
    assert differences(plain, plain) == [] == differences(scaled, scaled)
    assert differences({"a.b": None, "a.b.c": 1}, {"a.b": None, "a.b.c": 1}) == []  # dots in a key are no dict


def test_override_changes_one_field_and_leaves_the_preset_alone():
    preset = Preset()
    new = changed("agent.algorithm.discount=0.98", preset)
    assert new.agent.algorithm.discount == 0.98
    assert preset == Preset()
    assert dataclasses.replace(new, agent=preset.agent) == preset


def test_a_star_stands_for_every_entry():
    new = changed("agent.networks.*.learning_rate=0.5")
    assert {name: parameters.learning_rate for name, parameters in new.agent.networks.items()} == {
        "policy": 0.5,
        "v": 0.5,
        "q": 0.5,
    }


@pytest.mark.parametrize(
    "text, expected",
    [
        ("schedule.evaluation_steps=3", EnvironmentEpisodes(3)),
        ("schedule.improve_steps=5_000", EnvironmentSteps(5000)),
        ("schedule.improve_steps=TrainingSteps(7)", TrainingSteps(7)),
        ("schedule.evaluation_steps=EnvironmentSteps(20)", EnvironmentSteps(20)),
    ],
)
def test_a_bare_number_keeps_the_unit_and_a_written_unit_replaces_it(text, expected):
    assert getattr(changed(text).schedule, text.split(".")[1].split("=")[0]) == expected


@pytest.mark.parametrize(
    "text, read, expected",
    [
        (
            "agent.networks.q.head_parameters.network_layers_sizes=[8, 4]",
            lambda p: p.agent.networks["q"].head_parameters.network_layers_sizes,
            (8, 4),
        ),
        (
            "agent.networks.v.middleware_parameters.scheme=[32]",
            lambda p: p.agent.networks["v"].middleware_parameters.scheme,
            (32,),
        ),
        (
            "agent.networks.v.middleware_parameters.scheme=Deep",
            lambda p: p.agent.networks["v"].middleware_parameters.scheme,
            MiddlewareScheme.Deep,
        ),
        ('agent.exploration={"noise_std": 0.2}', lambda p: p.agent.exploration, AdditiveNoiseParameters(0.2)),
        (
            "environment.filters.reward_clipping_range=[-1, 2]",
            lambda p: p.environment.filters.reward_clipping_range,
            (-1.0, 2.0),
        ),
        (
            'agent.memory={"kind": "prior_data", "demonstrations": "x.npz", "share": 0.25}',
            lambda p: p.agent.memory,
            PriorDataReplayParameters("x.npz", share=0.25),
        ),
        (
            'agent.memory={"kind": "sqil", "demonstrations": "x.npz"}',
            lambda p: p.agent.memory,
            SQILExperienceReplayParameters("x.npz"),
        ),
        ('environment.atari={"noop_max": 0}', lambda p: p.environment.atari, AtariPreprocessingParameters(noop_max=0)),
        ("environment.max_episode_steps=null", lambda p: p.environment.max_episode_steps, None),
        ("environment.visible_entries=[2, 0]", lambda p: p.environment.visible_entries, (2, 0)),
        ("environment.kwargs.gravity=9.0", lambda p: p.environment.kwargs, {"gravity": 9.0}),
        ("environment.level=Hopper-v5", lambda p: p.environment.level, "Hopper-v5"),
    ],
)
def test_override_takes_json_values(text, read, expected):
    assert read(changed(text)) == expected


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "agent.algorithm.discont=0.9",
            "There is no parameter 'agent.algorithm.discont'. Did you mean 'discount'? Fields there",
        ),
        ("agnet.algorithm.discount=0.9", "Did you mean 'agent'?"),
        ("agent.networks.*.learnin_rate=0.1", "Did you mean 'learning_rate'?"),
        ("agent.networks.w.batch_size=3", "Fields there: policy, v, q."),
        (
            "agent.networks.policy.input_embedders_parameters.joints.scheme=[64]",
            "The network reads observation; to read others, name them all: "
            'agent.networks.policy.input_embedders_parameters={"joints": {"scheme": [64]}, ...}. Received: \'joints\'',
        ),
        ("gamma=0.9", "Did you mean 'agent.algorithm.discount'?"),
        ("agent.algorithm.tau=0.01", "Did you mean 'rate_for_copying_weights_to_target'?"),
        ("polyak=0.995", "Did you mean 'agent.algorithm.rate_for_copying_weights_to_target=0.005'?"),
        ("agent.algorithm.buffer-size=9", "Did you mean 'agent.memory.max_size'?"),
        ("agent.learning_rate=1e-3", "Did you mean 'agent.networks.*.learning_rate'?"),
        ("networks.q.batch_size=3", "Did you mean 'agent.networks.q.batch_size'?"),
        ("ent_coef=auto", "Agents with twin critics have a temperature: see the preset pendulum_twin_sac."),
        ("agent.algorithm.temperature=auto", "Agents with twin critics have a temperature"),
        ("total_timesteps=3", "Did you mean 'schedule.improve_steps' (counted from the end of the warm-up)?"),
        (
            "net_arch=[64]",
            "Did you mean 'agent.networks.policy.input_embedders_parameters.observation.scheme=[]' and "
            "'agent.networks.policy.middleware_parameters.scheme' and "
            "'agent.networks.q.head_parameters.network_layers_sizes'?",
        ),
        ("random_seed=3", "It belongs to a run: tfsac train --seed, tfsac.RunParameters(seed=...)."),
        ("agent.algorithm.discount.x=3", "There is no parameter 'agent.algorithm.discount.x'."),
        ("environment.kwargs.*=5", "There is no parameter 'environment.kwargs.*'. Received: '*'"),
        ("agent.networks.q.optimizer_kwargs.*=5", "There is no parameter 'agent.networks.q.optimizer_kwargs.*'."),
        (
            "agent.networks.q.learning_rate_decay_steps=10000000000000000000000",
            "learning_rate_decay_steps: Input should",
        ),
        ('agent.algorithm={"discont": 0.9}', "Did you mean 'discount'?"),
        ("agent.algorithm.discount=high", "agent.algorithm.discount: Input should be a valid number"),
        ("environment.num_envs=2.5", "environment.num_envs: Input should be a valid integer"),
        ("schedule.improve_steps=true", UNITS),
        ("schedule.improve_steps=-3", UNITS),
        ("schedule.heatup_steps=10", "batch_size must not be larger than what the warm-up collects"),
        ("agent.networks.q.batch_size=8", "equal batch_size"),
        ("agent=3", "Preset.agent: Input should be an object"),
    ],
)
def test_a_wrong_override_is_refused_with_words_that_help(text, words):
    with pytest.raises(ParameterError, match=re.escape(words)) as error:
        changed(text)
    assert "Received: " in str(error.value)


# -- levels ------------------------------------------------------------------------------------------------------------


def preset_of_levels():
    return Preset(
        environment=EnvironmentParameters("Hopper-v5"),
        validation=PresetValidationParameters(2000.0, 500),
        levels={
            "Humanoid-v5": {
                "environment.filters.reward_rescale_factor": 20.0,
                "validation.min_reward_threshold": 4000.0,
            }
        },
    )


def test_the_presets_own_level_changes_nothing():
    preset = preset_of_levels()
    assert for_level(preset, "Hopper-v5") is preset


@pytest.mark.parametrize(("listed", "visible"), [({}, None), ({"environment.visible_entries": (1, 0)}, (1, 0))])
def test_another_level_shows_all_entries_of_its_observations_unless_listed(listed, visible):
    environment = EnvironmentParameters("CartPole-v1", visible_entries=(0, 2))
    new = for_level(Preset(environment=environment, levels={"Pendulum-v1": listed}), "Pendulum-v1")
    assert new.environment.visible_entries == visible


def test_a_listed_level_applies_its_changes():
    new = for_level(preset_of_levels(), "Humanoid-v5")
    assert new.environment.level == "Humanoid-v5"
    assert new.environment.filters.reward_rescale_factor == 20.0
    assert new.validation.min_reward_threshold == 4000.0


@pytest.mark.parametrize(("listed", "scale"), [({}, 1.0), ({"environment.filters.reward_rescale_factor": 3.0}, 3.0)])
def test_a_level_without_a_threshold_of_its_own_loses_that_of_the_other(listed, scale):
    preset = preset_of_levels()
    levels = {**preset.levels, "Pendulum-v1": listed} if listed else preset.levels
    new = for_level(dataclasses.replace(preset, levels=levels), "Pendulum-v1")
    assert new.environment.level == "Pendulum-v1"
    assert new.validation == PresetValidationParameters(None, None)
    assert new.environment.filters.reward_rescale_factor == scale


def test_the_unit_of_steps_in_levels_is_kept_in_a_config():
    improve = {"schedule.improve_steps": TrainingSteps(1_000)}
    preset = dataclasses.replace(preset_of_levels(), levels={"Pendulum-v1": improve})
    read = from_json(Preset, json.dumps(to_json(preset)))
    assert read == preset and for_level(read, "Pendulum-v1").schedule.improve_steps == TrainingSteps(1_000)
    with pytest.raises(ParameterError, match=r"environment.level is set to numbers, .* Received: <object"):
        dataclasses.replace(preset, levels={"Pendulum-v1": {"environment.level": object()}})


def test_importing_parameters_does_not_import_tensorflow(run_python):
    program = (
        "import sys, tfsac.parameters as p; p.override(p.Preset(), {'agent.algorithm.discount': 0.9});"
        "print(sorted(m for m in ('tensorflow', 'keras', 'gymnasium') if m in sys.modules))"
    )
    assert run_python(program).strip() == "[]"


def test_a_memory_an_agent_and_a_temperature_may_leave_out_their_usual_kind():
    preset = from_json(Preset, '{"agent": {"memory": {"max_size": 9000}}}')
    assert preset.agent == SoftActorCriticAgentParameters(memory=ExperienceReplayParameters(9000))
    twin = Preset(agent=TwinSoftActorCriticAgentParameters())
    changed = override(
        twin, {"agent.algorithm.temperature": {"initial_alpha": 0.5}, "agent.memory": {"kind": "prioritized"}}
    )
    assert changed.agent.algorithm.temperature == AutoAlphaParameters(initial_alpha=0.5)
    assert changed.agent.memory == PrioritizedExperienceReplayParameters()


def test_a_discrete_agent_is_named_by_its_kind_and_its_parts_may_leave_out_theirs():
    text = '{"agent": {"kind": "discrete_soft_actor_critic", "algorithm": {"temperature": {"target_entropy": 0.3}}, '
    preset = from_json(Preset, text + '"exploration": {"decay": "linear"}, "memory": {"max_size": 9000}}}')
    temperature = DiscreteAutoAlphaParameters(target_entropy=0.3)
    assert preset.agent == Discrete(
        DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature),
        EpsilonGreedyParameters(decay="linear"),
        ExperienceReplayParameters(9000),
    )
    fixed = override(preset, {"agent.algorithm.temperature": {"kind": "fixed"}, "agent.exploration": None})
    assert (fixed.agent.algorithm.temperature, fixed.agent.exploration) == (FixedAlphaParameters(), None)
    with pytest.raises(
        ParameterError, match=r"temperature: Input should be an object of kind 'auto' or 'fixed'.* Received: 'sqil'$"
    ):
        override(preset, {"agent.algorithm.temperature": {"kind": "sqil"}})


def test_an_agent_with_trajectories_is_named_by_its_kind():
    text = '{"agent": {"kind": "temporally_abstract_actor_critic", "algorithm": {"min_prob": [0.05, 0.1]}, "memory": {"sequence_length": 6}}}'
    assert from_json(Preset, text).agent == Switching(
        Trajectories(min_prob=(0.05, 0.1)), memory=SequenceReplayParameters(sequence_length=6)
    )


def test_a_preset_holds_exactly_as_many_steps_as_its_stretches_need():
    assert switching_preset(max_size=12).agent.memory == SequenceReplayParameters(12, 6)
    assert switching_preset(EnvironmentEpisodes(1)).schedule.heatup_steps == EnvironmentEpisodes(1)  # of any length


def test_the_defaults_of_trajectories_are_the_documented_ones():
    algorithm = Trajectories()
    assert (algorithm.trajectory, algorithm.inverse_mode, algorithm.max_repeat_steps) == ("constant", True, None)
    assert (algorithm.b1_advantage_clipping, algorithm.compare_through, algorithm.epsilon_greedy) == (
        None,
        "sampled",
        0.0,
    )
    assert (algorithm.initial_alpha, algorithm.min_prob, algorithm.target_entropy) == (1.0, 0.1, None)
    assert (algorithm.randomize_first_state_tau, algorithm.reward_weights, algorithm.reward_discounts) == (
        False,
        None,
        None,
    )
    assert SequenceReplayParameters().sequence_length == 4
    networks = Switching().networks
    assert networks["q"].create_target_network and not networks["policy"].create_target_network
    q = networks["q"].head_parameters
    assert (q.network_layers_sizes, q.num_critics, q.init_w) == ((256, 256), 2, 0.003)


def test_epsilon_goes_down_as_described():
    exponential = EpsilonGreedyParameters(0.9, 0.1, 100)
    assert exponential.epsilon(0) == pytest.approx(0.9)
    assert exponential.epsilon(100) == pytest.approx(0.1 + 0.8 * 0.36787944)
    assert exponential.epsilon(10_000) == pytest.approx(0.1)
    linear = EpsilonGreedyParameters(0.9, 0.1, 100, "linear")
    assert [linear.epsilon(steps) for steps in (0, 50, 100, 1000)] == pytest.approx([0.9, 0.5, 0.1, 0.1])


def test_the_temperature_of_discrete_actions_belongs_to_discrete_agents():
    with pytest.raises(ParameterError, match="temperature"):
        TwinSoftActorCriticAlgorithmParameters(temperature=DiscreteAutoAlphaParameters(target_entropy_ratio=0.3))
    preset = load_preset("lunar_lander_discrete_sac")
    changes = {
        "agent.algorithm.temperature.target_entropy": 0.5,
        "agent.algorithm.temperature.target_entropy_ratio": None,
    }
    temperature = override(preset, changes).agent.algorithm.temperature
    assert (temperature.target_entropy, temperature.target_entropy_ratio) == (0.5, None)


@pytest.mark.parametrize("order", ["critic_first", "policy_first", "simultaneous"])
def test_an_update_order_is_a_name(order):
    preset = override(load_preset("pendulum_twin_sac"), {"agent.algorithm.update_order": order})
    assert preset.agent.algorithm.update_order == order
    assert from_json(Preset, json.dumps(to_json(preset))) == preset
    assert Twin().update_order == "critic_first"


def test_a_change_may_set_what_an_earlier_one_left_to_its_default():
    changes = {"agent.memory": {"kind": "sqil", "demonstrations": "x.npz"}, "agent.memory.num_episodes": 2}
    memory = override(load_preset("cart_pole_discrete_sac"), changes).agent.memory
    assert (memory.demonstrations, memory.num_episodes) == ("x.npz", 2)


def test_parameters_say_how_they_are_changed():
    preset = load_preset("pendulum_sac")
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"tfsac\.override\(preset, .* Received: discount=0\.9$"):
        preset.agent.algorithm.discount = 0.9
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"Did you mean 'agent'\? Received: agnt=5$"):
        preset.agnt = 5


@pytest.mark.parametrize(
    "value",
    [len, object(), {1: 2}, [{"a"}], pathlib.Path("x"), b"x", [float("nan")]],
    ids=lambda value: type(value).__name__,
)
def test_arguments_of_a_level_are_what_a_config_can_keep(value):
    with pytest.raises(ParameterError, match=r"their values are JSON: .*env_fn is for all others\. Received: x="):
        EnvironmentParameters(kwargs={"x": value})


def test_infinities_among_the_arguments_of_a_level_stay_as_they_are():
    kwargs = {"healthy_z_range": [0.5, float("inf")], "low": {"x": [-float("inf")]}}
    preset = override(load_preset("mujoco_twin_sac"), {"environment.kwargs": kwargs})
    assert preset.environment.kwargs == kwargs
    assert from_json(Preset, json.dumps(to_json(preset))) == preset
    assert override(preset, {"environment.kwargs.high": float("inf")}).environment.kwargs["high"] == float("inf")
    with pytest.raises(ParameterError, match="finite"):
        override(preset, {"agent.networks.policy.clip_gradients": float("inf")})


def test_the_discount_of_episodes_is_the_golden_one():
    golden, _ = golden_tools.read("modern_tables.npz")
    for steps, expected in zip(golden["gamma/episode_steps"], golden["gamma/value"], strict=True):
        assert discount_of_episodes(int(steps)) == pytest.approx(float(expected), abs=1e-6)
    with pytest.raises(ParameterError, match=r"An episode has at least one decision. Received: 0"):
        discount_of_episodes(0)
    with pytest.raises(ParameterError, match=r"at least one decision. Received: nan"):
        discount_of_episodes(float("nan"))
    with pytest.raises(ParameterError, match=r"at least one decision. Received: '1000'"):
        discount_of_episodes("1000")


@pytest.mark.parametrize("name", _PATHS)
def test_a_name_of_another_library_leads_to_a_parameter(name):
    presets = [to_json(load_preset(preset)) for preset in ("pendulum_twin_sac", "redq_mujoco")]
    assert any(meant_paths(name, preset) for preset in presets)


def test_a_name_that_the_preset_has_comes_before_another_librarys():
    preset = load_preset("pendulum_twin_sac")
    fixed = to_json(changed('agent.algorithm.temperature={"kind": "fixed", "alpha": 0.2}', preset))
    assert meant_paths("alpha", fixed) == ["agent.algorithm.temperature.alpha"]


def test_every_argument_of_another_library_leads_to_one_of_ours():
    functions = (tfsac.train, tfsac.evaluate, tfsac.load_policy, tfsac.load_preset)
    assert set(_ARGUMENTS.values()) <= {
        name for function in functions for name in inspect.signature(function).parameters
    }


def test_another_kind_alone_is_answered_with_how_to_give_it():
    preset = load_preset("pendulum_twin_sac")
    place = "agent.networks.q.head_parameters"
    with pytest.raises(ParameterError, match=re.escape(f'in one value: {place}={{"kind": ..., ...}}. QHead')):
        override(preset, {f"{place}.kind": "ensemble_q"})
    with pytest.raises(ParameterError, match="discount") as other:  # a wrong value is no matter of kinds
        override(preset, {"agent.memory.kind": "prioritized", "agent.algorithm.discount": 2.0})
    assert "Another kind" not in str(other.value)
    assert override(preset, {place: {"kind": "ensemble_q"}}).agent.networks["q"].head_parameters.num_critics == 2


def test_a_name_instead_of_a_preset_is_answered_with_how_to_load_it():
    with pytest.raises(
        ParameterError, match=r"tfsac\.load_preset\('redq_mujoco'\) returns it\. Received: 'redq_mujoco'"
    ):
        override("redq_mujoco", {})


def test_a_run_parameter_of_another_name_is_answered_with_ours():
    with pytest.raises(ParameterError, match="Did you mean 'checkpoint_save_steps'"):
        RunParameters(save_freq=3)


NUMPY = {
    "seed": lambda: RunParameters(seed=np.int64(3)),
    "a switch": lambda: RunParameters(tensorboard=np.bool_(False)),
    "an array without dimensions": lambda: RunParameters(checkpoint_save_steps=np.array(500)),
    "steps": lambda: ScheduleParameters(EnvironmentSteps(np.int32(100)), improve_steps=np.int64(200)),
    "widths": lambda: FCMiddlewareParameters(tuple(np.arange(8, 10)), dropout=np.float32(0.5)),
    "arguments": lambda: EnvironmentParameters(
        kwargs={"g": np.float32(0.5), "parts": [np.int64(1), (np.bool_(True),)]}
    ),
    "override": lambda: override(
        load_preset("pendulum_twin_sac"),
        {
            "environment.kwargs.limit": np.int64(7),
            "agent.algorithm.discount": np.float64(0.9),
            "agent.networks.*.batch_size": np.int16(16),
            "schedule.improve_steps": np.int64(5000),
        },
    ),
}


def numbers_in(value):
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict | list | tuple):
        return [x for each in (value.values() if isinstance(value, dict) else value) for x in numbers_in(each)]
    return [value]


@pytest.mark.parametrize("make", NUMPY.values(), ids=NUMPY)
def test_scalars_of_numpy_become_numbers_of_python(make):
    made = make()
    assert not [x for x in numbers_in(made) if isinstance(x, np.generic | np.ndarray)]
    assert from_json(type(made), json.dumps(to_json(made))) == made


def test_scalars_of_numpy_keep_their_values():
    assert NUMPY["seed"]().seed == 3 and NUMPY["a switch"]().tensorboard is False
    assert NUMPY["steps"]().improve_steps == EnvironmentSteps(200)
    assert NUMPY["widths"]().scheme == (8, 9) and NUMPY["widths"]().dropout == 0.5
    assert NUMPY["arguments"]().kwargs == {"g": 0.5, "parts": [1, [True]]}
    made = NUMPY["override"]()
    assert (made.environment.kwargs, made.agent.algorithm.discount) == ({"limit": 7}, 0.9)
    assert made.agent.batch_size == 16 and made.schedule.improve_steps == EnvironmentSteps(5000)


@pytest.mark.parametrize(
    "assignment, expected",
    [
        ("schedule.improve_steps=1e5", "EnvironmentSteps(100000)"),
        ("schedule.improve_steps=EnvironmentSteps(1.5e5)", "EnvironmentSteps(150000)"),
        ("agent.memory.max_size=200000.0", 200000),
        ("environment.max_episode_steps=2e2", 200),
        ("agent.networks.policy.middleware_parameters.scheme=[3.2e1, 64]", [32, 64]),
        ("environment.kwargs.g=10.0", 10.0),  # what an environment takes stays as it is
    ],
)
def test_whole_floats_are_integers_where_a_parameter_is_one(assignment, expected):
    path, value = parse_assignment(assignment)
    node = to_json(override(load_preset("pendulum_twin_sac"), {path: value}))
    for key in path.split("."):
        node = node[key]
    assert node == expected and type(node) is type(expected)


def test_other_floats_are_no_integers():
    for steps in (1.5, "EnvironmentSteps(1.5)"):
        with pytest.raises(ParameterError, match="a whole number of environment steps"):
            override(load_preset("pendulum_twin_sac"), {"schedule.improve_steps": steps})
    with pytest.raises(ParameterError, match="valid integer"):
        EnvironmentSteps(True)
