"""Networks that read some keys of an observation: privileged critics, and a policy that never touches their keys."""

import json

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny
from toys import random_batches, team_spec, tiny_preset

import tfsac
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.exporting.exported import load_exported
from tfsac.parameters import (
    BaseAgentParameters,
    NetworkParameters,
    RunParameters,
    VHeadParameters,
    from_json,
    override,
    to_json,
)
from tfsac.preset_lookup import load_preset
from tfsac.training import Policy, Trainer
from tfsac.training.build import build_agent
from tfsac.training.checkpoints import CheckpointError
from tfsac.types import ArraySpec, DiscreteSpec, Spec

SENSORS, STATE = ArraySpec((3,), "float32"), ArraySpec((2,), "float32")
NUMBERS = ArraySpec((1,), "float32", np.float32([-2]), np.float32([2]))
SPEC = Spec({"sensors": SENSORS, "state": STATE}, NUMBERS)
BOTH = ("sensors", "state")
KEYS = {
    "agent.networks.*.observation_keys": ["sensors", "state"],
    "agent.networks.policy.observation_keys": ["sensors"],
}
NORMALISED = {"environment.filters.observation_normalization": True}
SHORT = {"environment.max_episode_steps": 10, **tiny.SHORTER}


class Simulated(gym.Env):
    """Shows a noisy state as "sensors" and, in training, the "state" itself."""

    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, deployed=False, scale=1.0):
        self.deployed, self.scale = deployed, scale
        spaces = {"sensors": gym.spaces.Box(-10.0, 10.0, (3,), np.float32)}
        if not deployed:
            spaces["state"] = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(spaces)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 2)
        return self.observation(), {}

    def step(self, action):
        self.state = np.clip(self.state + 0.1 * action, -2.0, 2.0)
        return self.observation(), -float(np.square(self.state).sum()), False, False, {}

    def observation(self):
        noise = self.np_random.normal(0.0, 0.1, 3)
        seen = {"sensors": (np.append(self.state, 0.0) + noise).astype(np.float32)}
        return seen if self.deployed else seen | {"state": (self.scale * self.state).astype(np.float32)}


def deployed():
    return Simulated(deployed=True)


def changes_for(preset):
    names = [name for name in preset.agent.networks if name != "policy"]
    return {f"agent.networks.{name}.observation_keys": [*BOTH] for name in names} | {
        "agent.networks.policy.observation_keys": ["sensors"]
    }


PRESETS = {
    "twin": lambda: tiny.shrunk(load_preset("pendulum_twin_sac"), **SHORT),
    "v": lambda: tiny_preset(),
    "ensemble": lambda: tiny.ensemble(level="Pendulum-v1"),
    "discrete": lambda: tiny.shrunk(load_preset("cart_pole_discrete_sac"), **SHORT),
    "acer": lambda: tiny.acer("Pendulum-v1", lstm=True),
}


def privileged(name="twin", **changes):
    preset = PRESETS[name]()
    return override(preset, {**changes_for(preset), "environment.num_envs": 1, **changes})


def agent_of(preset, spec=SPEC, models=None):
    return build_agent(preset, RunParameters(seed=3, eager=True), spec, models)


def seen(spec=SPEC, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return {key: rng.normal(size=(rows, *array.shape)).astype(array.dtype) for key, array in spec.observation.items()}


# -- what networks read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_the_policy_and_the_critics_read_their_keys_and_target_networks_those_of_their_online_ones(name):
    spec = SPEC._replace(action=DiscreteSpec(2)) if name == "discrete" else SPEC
    preset = privileged(name)
    agent = agent_of(preset, spec)
    for network, made in agent.networks.items():
        assert [*made.embedders] == (["sensors"] if network.startswith("policy") else [*BOTH]), network
    assert agent.notes == []
    policy = type(agent.policy).build(preset.agent, spec, seed=3)  # without critics
    without = {"sensors": seen()["sensors"]}
    full = {**without, "state": np.full((4, 2), np.nan, np.float32)}
    for mode in ("greedy", "sample", "explore"):
        actions = []
        for observation in (without, full):
            policy.rng = np.random.default_rng(1)
            actions.append(policy.act(observation, mode=mode).action)
        np.testing.assert_array_equal(*actions, err_msg=mode)
    assert np.isfinite(actions[0]).all()


def test_keys_are_read_in_the_order_of_the_list_each_through_its_own_embedder_or_the_usual_one():
    embedders = {"observation": {"scheme": [5]}, "state": {"scheme": [7]}}
    changes = {"agent.networks.q.observation_keys": ["state", "sensors"]}
    changes["agent.networks.q.input_embedders_parameters"] = embedders
    embedders = agent_of(privileged(**changes)).networks["q"].embedders
    assert [(key, layers[-1].units) for key, layers in embedders.items()] == [("state", 7), ("sensors", 5)]
    usual = agent_of(privileged()).networks["q"]
    assert [*usual.embedders.values()] == [[], []]  # as the preset's for "observation"


def test_the_embedders_way_reads_the_same_keys_and_gives_the_same_networks():
    by_embedders = override(
        PRESETS["twin"](),
        {
            "agent.networks.policy.input_embedders_parameters": {"sensors": {"scheme": []}},
            "agent.networks.q.input_embedders_parameters": {key: {"scheme": []} for key in BOTH},
        },
    )
    for ours, theirs in zip(*(agent_of(p).networks.values() for p in (privileged(), by_embedders)), strict=True):
        assert [*ours.embedders] == [*theirs.embedders]
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_updates_differ_only_by_what_the_critics_read():
    """The critics learn from the privileged key, and the policy through them alone."""
    batches = random_batches(SPEC, 2, 32)
    moved = batches._replace(observation={**batches.observation, "state": batches.observation["state"] + 1.0})
    blind = privileged(**{"agent.networks.q.observation_keys": ["sensors"]})
    for preset, differs in ((privileged(), True), (blind, False)):
        losses = []
        for batch in (batches, moved):
            agent = agent_of(preset)
            losses.append(agent.update(batch).metrics[0, agent.metric_names.index("loss/q1")])
        assert (losses[0] != losses[1]) == differs


def test_critics_of_a_team_read_two_keys():
    spec = team_spec(2, discrete=False)
    keys = {"agent.networks.policy.observation_keys": ["agent_state"]}
    keys["agent.networks.q.observation_keys"] = ["agent_state", "global_state"]
    agent = agent_of(override(PRESETS["twin"](), keys), spec)
    assert [*agent.networks["q_target"].embedders] == ["agent_state", "global_state"]
    agent.update(random_batches(spec, 1, 32))


def test_custom_models_get_the_keys_of_their_network():
    read = {}

    class Reads(tf.keras.Model):
        def __init__(self, name):
            super().__init__()
            self.layer, self.title = tf.keras.layers.Dense(2), name

        def call(self, inputs):
            parts = inputs[0] if isinstance(inputs, list | tuple) else inputs
            read[self.title] = sorted(parts)
            action = [inputs[1]] if isinstance(inputs, list | tuple) else []
            x = self.layer(tf.concat([*(parts[key] for key in sorted(parts)), *action], -1))
            return x if action else [x[:, :1], x[:, 1:]]

    agent_of(privileged(), models=lambda: {"policy": Reads("policy"), "q": Reads("q")})
    assert read == {"policy": ["sensors"], "q": [*BOTH]}


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("privileged") / "run"
    tfsac.train(privileged(**NORMALISED), folder, RunParameters(seed=1), env_fn=Simulated, quiet=True)
    return folder


def test_a_loaded_policy_needs_and_carries_the_policys_keys_alone(run):
    policy = tfsac.load_policy(run, env_fn=deployed)
    assert [*policy.reads.observation] == ["sensors"]
    state = policy.filters.state()
    assert [*state["mean"]] == [*state["squares"]] == ["sensors"] and state["count"] > 50
    observation = {"sensors": seen()["sensors"]}
    action = policy.act(observation)
    for other in (np.full((4, 2), np.nan), np.zeros((4, 7))):
        np.testing.assert_array_equal(policy.act({**observation, "state": other}), action)
    both = tfsac.load_policy(run, env_fn=Simulated, critics=True)
    np.testing.assert_array_equal(both.act(observation), action)
    assert [*both.filters.state()["mean"]] == [*BOTH]
    with pytest.raises(TfsacError, match="state"):
        both.values(observation, action)
    assert both.values(seen(), action)["q"].shape == (4,)


def test_the_policy_is_evaluated_where_there_are_no_privileged_keys_and_as_in_training(run):
    changed = {"environment.kwargs": {}}
    played = tfsac.evaluate(run, episodes=2, env_fn=deployed, changes=changed)
    np.testing.assert_array_equal(played.returns, tfsac.evaluate(run, episodes=2, env_fn=Simulated).returns)


@pytest.mark.parametrize("kind", ["saved_model", pytest.param("tflite", marks=pytest.mark.slow)])
def test_an_export_asks_for_the_policys_keys_and_its_values_for_those_of_the_critics(kind, run, tmp_path):
    policy = tfsac.load_policy(run, env_fn=Simulated, critics=True)
    path = tfsac.export(policy, tmp_path / "exported", kind, values=True)
    observations = [{key: array[i] for key, array in seen().items()} for i in range(4)]
    assert tfsac.verify(policy, path, observations) < 1e-5
    assert [*load_exported(path).reads] == ["sensors"]
    if kind == "tflite":
        return
    signatures = tf.saved_model.load(str(path)).signatures
    assert sorted(signatures["values"].structured_input_signature[1]) == ["action", *BOTH]


def test_normalisation_is_by_key_so_that_a_privileged_key_never_reaches_the_policy():
    filters = [Filters(privileged(**NORMALISED).environment.filters, SPEC) for _ in range(2)]
    agent, observation = agent_of(privileged(**NORMALISED)), seen()
    for scale, one in zip((1.0, 1e4), filters, strict=True):
        one.learn({"sensors": seen(rows=9)["sensors"], "state": scale * seen(rows=9)["state"]})
    actions = [Policy(agent.policy, one).act({"sensors": observation["sensors"]}) for one in filters]
    np.testing.assert_array_equal(*actions)


def test_the_memory_has_all_keys_and_demonstrations_must_too(run, tmp_path):
    trainer = Trainer(privileged(), tmp_path / "unused", quiet=True, env_fn=Simulated)
    trainer.close()
    assert [*trainer.memory.observation] == [*BOTH]
    policy = tfsac.load_policy(run, env_fn=deployed)
    for number, env in enumerate((Simulated(), deployed())):
        shown = tfsac.demonstrate(policy.act, gym.wrappers.TimeLimit(env, 8), 2)
        tfsac.save_demonstrations(tmp_path / f"{number}.npz", shown)
    for number, missing in ((0, None), (1, "lacks 'observation/state'")):
        memory = {"kind": "prior_data", "demonstrations": str(tmp_path / f"{number}.npz"), "max_size": 100}
        preset = privileged(**{"agent.memory": memory})
        if missing is None:
            Trainer(preset, tmp_path / "with", quiet=True, env_fn=Simulated).close()
            continue
        with pytest.raises(TfsacError, match=missing):
            Trainer(preset, tmp_path / "without", quiet=True, env_fn=Simulated)
        assert not (tmp_path / "without").exists()


def test_a_resume_keeps_the_keys(run):
    other = privileged(**NORMALISED, **{"agent.networks.q.observation_keys": ["state"]})
    with pytest.raises(CheckpointError, match="observation_keys"):
        tfsac.train(other, run, RunParameters(seed=1), env_fn=Simulated, resume=True, quiet=True)


@pytest.mark.usefixtures("untraced")
def test_fine_tuning_keeps_the_policy_where_the_critics_read_other_keys(run, tmp_path, capsys):
    other = privileged(**NORMALISED, **{"agent.networks.q.observation_keys": ["state"]})
    with Fine(other, tmp_path / "other", run) as trainer:
        source = tfsac.load_policy(run, env_fn=Simulated, critics=True)
        networks = (agent.networks["policy"].variables for agent in (trainer.agent, source.acting))
        for ours, theirs in zip(*networks, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        assert [*trainer.agent.networks["q"].embedders] == ["state"]
        ours, theirs = trainer.filters.state(), source.filters.state()
        assert ours["mean"]["sensors"] == theirs["mean"]["sensors"] and ours["counts"] == theirs["counts"]
    assert "Network 'q' reads other observations" in capsys.readouterr().out
    swapped = privileged(**NORMALISED, **{"agent.networks.policy.observation_keys": ["state"]})
    with pytest.raises(TfsacError, match=r"observation_keys=.* in network 'policy'"):
        Trainer(swapped, tmp_path / "swapped", quiet=True, env_fn=Simulated, initial_weights=run)


class Fine:
    """A trainer that begins with a run's weights, not quiet, closed at the end."""

    def __init__(self, preset, folder, source):
        self.trainer = Trainer(preset, folder, env_fn=Simulated, initial_weights=source)

    def __enter__(self):
        return self.trainer

    def __exit__(self, *error):
        self.trainer.close()


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agent.networks.q.observation_keys": []}, "at least 1"),
        ({"agent.networks.q.observation_keys": ["state", "state"]}, "distinct"),
        ({"agent.networks.q.observation_keys": ["sensors", "stat"]}, "Did you mean 'state'"),
        ({"agent.networks.q.input_embedders_parameters": {"state": {}, "camera": {}}}, r"lack \['camera'\]"),
    ],
)
def test_keys_that_nothing_can_read_are_refused(changes, words):
    with pytest.raises(TfsacError, match=words):
        agent_of(privileged(**changes))


def test_a_shared_encoder_and_a_trunk_are_of_one_list():
    layers = {
        f"agent.networks.{name}.input_embedders_parameters": {"observation": {"scheme": [4]}}
        for name in ("policy", "q")
    }
    shared = {"agent.shared_encoder": True, **layers, "agent.networks.*.observation_keys": [*BOTH]}
    preset = override(PRESETS["discrete"](), shared)
    agent = agent_of(preset, SPEC._replace(action=DiscreteSpec(2)))
    assert agent.networks["policy"].embedders is agent.networks["q"].embedders
    with pytest.raises(TfsacError, match="observation_keys"):
        override(preset, {"agent.networks.policy.observation_keys": ["sensors"]})
    trunk, two = tiny.acer(shared=True), SPEC._replace(action=DiscreteSpec(2))
    read = agent_of(override(trunk, {"agent.networks.trunk.observation_keys": ["state"]}), two).networks["trunk"]
    assert [*read.embedders] == ["state"]
    with pytest.raises(TfsacError, match=r"lack \['features'\]"):
        override(trunk, {"agent.networks.policy.observation_keys": ["sensors"]})


def test_keys_survive_json_and_configs_without_them_are_read():
    network = NetworkParameters(VHeadParameters(), observation_keys=("b", "a"))
    content = to_json(network)
    assert content["observation_keys"] == ["b", "a"] and from_json(NetworkParameters, json.dumps(content)) == network
    del content["observation_keys"]
    assert from_json(NetworkParameters, content).observation_keys is None
    assert issubclass(type(privileged().agent), BaseAgentParameters)
