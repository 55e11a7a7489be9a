"""`observation_keys`: privileged critics read keys that the policy does not."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny
from toys import tiny_preset

import tfsac
from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters, override
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer
from tfsac.training.build import build_agent
from tfsac.types import ArraySpec, DiscreteSpec, Spec

SENSORS, STATE = ArraySpec((3,), "float32"), ArraySpec((2,), "float32")
ACTION = ArraySpec((1,), "float32", np.float32([-2]), np.float32([2]))
SPEC = Spec({"sensors": SENSORS, "state": STATE}, ACTION)
BOTH = ("sensors", "state")
NORMALISED = {"environment.filters.observation_normalization": True}
SHORT = {"environment.max_episode_steps": 10, **tiny.SHORTER}


class PointMass(gym.Env):
    """Observes noisy "sensors" and, unless deployed, the true "state"."""

    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, deployed_env=False):
        self.deployed = deployed_env
        spaces = {"sensors": gym.spaces.Box(-10.0, 10.0, (3,), np.float32)}
        if not deployed_env:
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
        random_observation = {"sensors": (np.append(self.state, 0.0) + noise).astype(np.float32)}
        return random_observation if self.deployed else random_observation | {"state": self.state.astype(np.float32)}


def deployed_env():
    return PointMass(deployed_env=True)


def key_changes(preset):
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
    return override(preset, {**key_changes(preset), "environment.num_envs": 1, **changes})


def agent_of(preset, spec=SPEC, models=None):
    return build_agent(preset, RunParameters(seed=3, eager=True), spec, models)


def random_observation(spec=SPEC, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return {key: rng.normal(size=(rows, *array.shape)).astype(array.dtype) for key, array in spec.observation.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_each_network_reads_its_observation_keys(name):
    spec = SPEC._replace(action=DiscreteSpec(2)) if name == "discrete" else SPEC
    preset = privileged(name)
    agent = agent_of(preset, spec)
    for network, made in agent.networks.items():
        assert [*made.embedders] == (["sensors"] if network.startswith("policy") else [*BOTH]), network
    assert agent.notes == []
    policy = type(agent.policy).build(preset.agent, spec, seed=3)  # no critics
    without = {"sensors": random_observation()["sensors"]}
    full = {**without, "state": np.full((4, 2), np.nan, np.float32)}
    for mode in ("greedy", "sample", "explore"):
        actions = []
        for observation in (without, full):
            policy.rng = np.random.default_rng(1)
            actions.append(policy.act(observation, mode=mode).action)
        np.testing.assert_array_equal(*actions, err_msg=mode)
    assert np.isfinite(actions[0]).all()


def test_keys_are_read_in_order_with_their_embedders():
    embedders = {"observation": {"scheme": [5]}, "state": {"scheme": [7]}}
    changes = {"agent.networks.q.observation_keys": ["state", "sensors"]}
    changes["agent.networks.q.input_embedders_parameters"] = embedders
    embedders = agent_of(privileged(**changes)).networks["q"].embedders
    assert [(key, layers[-1].units) for key, layers in embedders.items()] == [("state", 7), ("sensors", 5)]
    default = agent_of(privileged()).networks["q"]
    assert [*default.embedders.values()] == [[], []]  # the preset's embedder for "observation"


def test_custom_models_receive_their_observation_keys():
    read_keys = {}

    class KeyRecorder(tf.keras.Model):
        def __init__(self, name):
            super().__init__()
            self.layer, self.title = tf.keras.layers.Dense(2), name

        def call(self, inputs):
            parts = inputs[0] if isinstance(inputs, list | tuple) else inputs
            read_keys[self.title] = sorted(parts)
            action = [inputs[1]] if isinstance(inputs, list | tuple) else []
            x = self.layer(tf.concat([*(parts[key] for key in sorted(parts)), *action], -1))
            return x if action else [x[:, :1], x[:, 1:]]

    agent_of(privileged(), models=lambda: {"policy": KeyRecorder("policy"), "q": KeyRecorder("q")})
    assert read_keys == {"policy": ["sensors"], "q": [*BOTH]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("privileged") / "run"
    tfsac.train(privileged(**NORMALISED), folder, RunParameters(seed=1), env_fn=PointMass, quiet=True)
    return folder


def test_loaded_policy_needs_only_its_own_keys(run):
    policy = tfsac.load_policy(run, env_fn=deployed_env)
    assert [*policy.reads.observation] == ["sensors"]
    state = policy.filters.state()
    assert [*state["mean"]] == [*state["squares"]] == ["sensors"] and state["count"] > 50
    observation = {"sensors": random_observation()["sensors"]}
    both = tfsac.load_policy(run, env_fn=PointMass, critics=True)
    np.testing.assert_array_equal(both.act(observation), policy.act(observation))
    assert [*both.filters.state()["mean"]] == [*BOTH]


def test_memory_and_demonstrations_need_all_keys(run, tmp_path):
    trainer = Trainer(privileged(), tmp_path / "unused", quiet=True, env_fn=PointMass)
    trainer.close()
    assert [*trainer.memory.observation] == [*BOTH]
    policy = tfsac.load_policy(run, env_fn=deployed_env)
    demonstrations = tfsac.demonstrate(policy.act, gym.wrappers.TimeLimit(deployed_env(), 8), 2)
    tfsac.save_demonstrations(tmp_path / "shown.npz", demonstrations)
    memory = {"kind": "prior_data", "demonstrations": str(tmp_path / "shown.npz"), "max_size": 100}
    with pytest.raises(TfsacError, match="lacks 'observation/state'"):
        Trainer(privileged(**{"agent.memory": memory}), tmp_path / "without", quiet=True, env_fn=PointMass)


@pytest.mark.usefixtures("no_tracing")
def test_fine_tuning_with_other_critic_keys(run, tmp_path, capsys):
    other = privileged(**NORMALISED, **{"agent.networks.q.observation_keys": ["state"]})
    trainer = Trainer(other, tmp_path / "other", env_fn=PointMass, initial_weights=run)
    trainer.close()
    source = tfsac.load_policy(run, env_fn=PointMass, critics=True)
    networks = (agent.networks["policy"].variables for agent in (trainer.agent, source.acting))
    for ours, theirs in zip(*networks, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert [*trainer.agent.networks["q"].embedders] == ["state"]
    ours, theirs = trainer.filters.state(), source.filters.state()
    assert ours["mean"]["sensors"] == theirs["mean"]["sensors"] and ours["counts"] == theirs["counts"]
    assert "Network 'q' reads other observations" in capsys.readouterr().out
    swapped = privileged(**NORMALISED, **{"agent.networks.policy.observation_keys": ["state"]})
    with pytest.raises(TfsacError, match=r"observation_keys=.* in network 'policy'"):
        Trainer(swapped, tmp_path / "swapped", quiet=True, env_fn=PointMass, initial_weights=run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agent.networks.q.observation_keys": ["state", "state"]}, "distinct"),
        ({"agent.networks.q.observation_keys": ["sensors", "stat"]}, "Did you mean 'state'"),
        ({"agent.networks.q.input_embedders_parameters": {"state": {}, "camera": {}}}, r"\['camera'\]"),
    ],
)
def test_invalid_observation_keys_are_rejected(changes, words):
    with pytest.raises(TfsacError, match=words):
        agent_of(privileged(**changes))


def test_shared_encoder_and_trunk_need_equal_keys():
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
    read_keys = agent_of(override(trunk, {"agent.networks.trunk.observation_keys": ["state"]}), two).networks["trunk"]
    assert [*read_keys.embedders] == ["state"]
    with pytest.raises(TfsacError, match=r"\['features'\]"):
        override(trunk, {"agent.networks.policy.observation_keys": ["sensors"]})
