"""Tiny runs and environments for several test modules."""

import csv
import dataclasses
import json
import pathlib

import gymnasium as gym
import numpy as np
from toys import tiny_preset

from tfsac import cli
from tfsac import parameters as p
from tfsac.environments import make
from tfsac.parameters.overrides import covers
from tfsac.preset_lookup import load_preset

# Two evaluations, in the middle and at the end, of two short episodes each.
CHANGES = {
    "schedule.heatup_steps": 300,
    "schedule.improve_steps": 200,
    "schedule.steps_between_evaluation_periods": "EnvironmentSteps(250)",
    "schedule.evaluation_steps": "EnvironmentEpisodes(2)",
    "environment.max_episode_steps": 50,
    "agent.memory.max_size": 1000,
    "agent.networks.*.batch_size": 32,
    "agent.networks.policy.input_embedders_parameters.*.scheme": "Empty",
    "agent.networks.policy.middleware_parameters.scheme": [16],
    "agent.networks.v.input_embedders_parameters.*.scheme": "Empty",
    "agent.networks.v.middleware_parameters.scheme": [16],
    "agent.networks.q.head_parameters.network_layers_sizes": [16],
}
TINY_IMAGE = [{"num_filters": 4, "kernel_size": 8, "stride": 8}, 16]
# With fewer steps, for tests in which learning does not matter.
SHORTER = {"schedule.heatup_steps": 40, "schedule.improve_steps": 20}
SHORTER |= {"schedule.steps_between_evaluation_periods": "EnvironmentSteps(50)", "environment.max_episode_steps": 10}
# For agents that learn from sequences, which are complete only after a few steps.
SIXTY_STEPS = {"schedule.heatup_steps": 40, "schedule.improve_steps": 60}
SIXTY_STEPS |= {"schedule.steps_between_evaluation_periods": 50}


def assignments(changes):
    """Returns changes as --set flags."""
    return [f"--set={path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in changes.items()]


def train(run_dir, *flags, shorter=True, changes=None):
    """Runs `tfsac train` on a tiny Pendulum in this process; returns the exit status."""
    defaults, new = {**CHANGES, **(SHORTER if shorter else {})}, changes or {}
    changes = {path: value for path, value in defaults.items() if not any(covers(one, path) for one in new)} | new
    one_graph = ["--updates_between_diagnostics=1"] if shorter else []
    preset = [] if any(flag.startswith(("--preset", "--resume")) for flag in flags) else ["--preset=pendulum_sac"]
    return cli.run(["train", f"--run_dir={run_dir}", *preset, *one_graph, *assignments(changes), *flags])


def shrunk(preset: p.Preset, **more) -> p.Preset:
    """Returns a tiny version of a preset, with the same algorithm."""
    if isinstance(preset.agent.memory, p.EpisodicReplayParameters):
        return p.override(preset, {**shrunk_segments(preset), **more})
    without_v = "v" not in preset.agent.networks
    fitting = {
        path: value for path, value in CHANGES.items() if not (without_v and path.startswith("agent.networks.v."))
    }
    if getattr(preset.agent, "has_ensemble", False):
        fitting = {path: value for path, value in fitting.items() if ".networks." not in path or "batch_size" in path}
        bodies = {
            "agent.networks.policy.middleware_parameters": preset.agent.networks["policy"].middleware_parameters,
            "agent.networks.q.head_parameters": preset.agent.networks["q"].head_parameters.body,
        }
        for path, body in bodies.items():
            critics = path.endswith("head_parameters")
            if body.kind == "residual":
                fitting[f"{path}.residual_blocks.width" if critics else f"{path}.width"] = 8
            else:
                fitting[f"{path}.network_layers_sizes" if critics else f"{path}.scheme"] = [16] * len(body.scheme)
    if preset.agent.recurrent:
        fitting |= {
            "agent.networks.*.middleware_parameters.number_of_lstm_cells": 8,
            "agent.networks.*.batch_size": 4,
            "agent.algorithm.burn_in": 2,
            "agent.memory.sequence_length": 8,
        }
    if getattr(preset.agent, "shared_encoder", False):  # equal image embedders
        fitting |= {
            f"agent.networks.{name}.input_embedders_parameters.*.scheme": TINY_IMAGE for name in ("policy", "q")
        }
    return p.override(preset, {**fitting, **more})


def shrunk_segments(preset: p.Preset) -> dict:
    """Returns changes that shrink a preset with episodic replay, with or without a trunk and LSTMs."""
    changes = {path: value for path, value in CHANGES.items() if "heatup" not in path and "networks" not in path}
    changes |= {"agent.algorithm.t_max": 8, "agent.memory.replay_start_size": 10}
    changes["agent.networks.*.batch_size"] = max(4, preset.environment.num_envs)
    for name, network in preset.agent.networks.items():
        prefix = f"agent.networks.{name}"
        for key, embedder in p.to_json(network)["input_embedders_parameters"].items():
            image = isinstance(embedder["scheme"], list) and isinstance(embedder["scheme"][0], dict)
            changes[f"{prefix}.input_embedders_parameters.{key}.scheme"] = TINY_IMAGE if image else "Empty"
        if p.FEATURES not in network.input_embedders_parameters:
            changes[f"{prefix}.middleware_parameters.scheme"] = [16]
        if network.middleware_parameters.kind == "lstm":
            changes[f"{prefix}.middleware_parameters.number_of_lstm_cells"] = 8
        if name == "advantage":
            changes[f"{prefix}.head_parameters.network_layers_sizes"] = [16]
    return changes


def ensemble(name="flash_sac_mujoco", level="Pendulum-v1", **changes) -> p.Preset:
    """Returns a tiny preset with an ensemble of critics."""
    return shrunk(load_preset(name), **{"environment.level": level, **SHORTER, **changes})


def taac(level="Pendulum-v1", **changes) -> p.Preset:
    """Returns a tiny TAAC preset; `init_w` makes its initial Q values large."""
    agent = p.TemporallyAbstractActorCriticAgentParameters(
        memory=p.SequenceReplayParameters(max_size=1000, sequence_length=4),
        networks=p.temporally_abstract_networks((16,), init_w=0.5, learning_rate=1e-3, batch_size=16),
    )
    return p.override(dataclasses.replace(tiny_preset(level), agent=agent), {**SIXTY_STEPS, **changes})


def recurrent(level="Pendulum-v1", discrete=False, **changes) -> p.Preset:
    """Returns a tiny preset of recurrent SAC, with sequences of seven steps, two of them burn-in."""
    kind = p.RecurrentDiscreteSoftActorCriticAgentParameters if discrete else p.RecurrentSoftActorCriticAgentParameters
    agent = kind(
        algorithm={"burn_in": 2},
        memory=p.SequenceReplayParameters(max_size=1000, sequence_length=8),
        networks=p.recurrent_soft_actor_critic_networks((8,), 6, (8,), discrete, learning_rate=1e-3, batch_size=4),
    )
    return p.override(dataclasses.replace(tiny_preset(level), agent=agent), {**SIXTY_STEPS, **changes})


def hybrid(level="toys:HybridIdentity-v0", **changes) -> p.Preset:
    """Returns a tiny preset of hybrid SAC."""
    agent = p.HybridSoftActorCriticAgentParameters(
        memory=p.ExperienceReplayParameters(max_size=1000),
        networks=p.hybrid_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32),
    )
    return p.override(dataclasses.replace(tiny_preset(level), agent=agent), changes)


def acer(level="CartPole-v1", lstm=False, shared=False, **changes) -> p.Preset:
    """Returns a tiny ACER preset, discrete or Gaussian depending on the level."""
    env = make(level)
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    env.close()
    networks = p.discrete_acer_networks if discrete else p.gaussian_acer_networks
    widths = {} if discrete else {"advantage_layers": (8,)}
    agent = (p.DiscreteACERAgentParameters if discrete else p.GaussianACERAgentParameters)(
        memory=p.EpisodicReplayParameters(max_size=1000, replay_start_size=40),
        networks=networks(
            (16,), lstm_cells=8 if lstm else None, shared=shared, learning_rate=1e-3, batch_size=4, **widths
        ),
    )
    preset = tiny_preset(level)
    schedule = dataclasses.replace(preset.schedule, heatup_steps=p.EnvironmentSteps(0))
    shorter = {
        "schedule.improve_steps": 120,
        "schedule.steps_between_evaluation_periods": 60,
        "agent.algorithm.t_max": 6,
        "agent.algorithm.n_times_replay": 2,
    }
    return p.override(dataclasses.replace(preset, agent=agent, schedule=schedule), {**shorter, **changes})


def short_preset(**changes):
    """Returns a preset of 60 steps with two evaluations, and updates in the last 20."""
    defaults = {"heatup_steps": 40, "improve_steps": 20, "steps_between_evaluation_periods": 50}
    return tiny_preset(**{**{f"schedule__{name}": steps for name, steps in defaults.items()}, **changes})


def one_step_task(**changes):
    """Returns a preset of a task that is solved by copying the observation."""
    defaults = {
        "environment__filters__reward_rescale_factor": 20.0,
        "schedule__heatup_steps": 200,
        "schedule__improve_steps": 1500,
        "schedule__evaluation_steps": "EnvironmentEpisodes(50)",
        "schedule__steps_between_evaluation_periods": 1700,
        "agent__networks": p.soft_actor_critic_networks((16, 16), learning_rate=3e-3, batch_size=32),
    }
    return tiny_preset("toys:Identity-v0", **defaults | changes)


def untrained_run(folder, level, preset=None):
    """Creates a run directory whose best policy has initial weights."""
    from tfsac.environments import Filters, maker, spec_of
    from tfsac.training import RunDirectory
    from tfsac.training.build import build_agent
    from tfsac.training.policy_weights import save_weights
    from tfsac.training.run_directory import spaces_of

    preset = preset or shrunk(load_preset("pendulum_sac"))
    preset, directory = p.override(preset, {"environment.level": level}), RunDirectory(folder)
    spec = spec_of(maker(preset.environment)())
    directory.create(preset, p.RunParameters(), {"spaces": spaces_of(spec)})
    agent = build_agent(preset, p.RunParameters(), spec)
    save_weights(directory.best, agent, Filters(preset.environment.filters, spec))
    return folder


def newest(memory, num_rows):
    """Returns the last rows of a memory, `[num_rows, E]`."""
    return memory.between(memory.total_rows - num_rows, memory.total_rows)


def rows(run_dir):
    """Returns the lines of metrics.csv as dicts of strings."""
    with (pathlib.Path(run_dir) / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class CameraArm(gym.Env):
    """Observes a dict of a vector and an image; two actions with different bounds."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space = gym.spaces.Dict(
            {
                "joints": gym.spaces.Box(-50.0, 50.0, (3,), np.float64),
                "camera": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            }
        )
        self.action_space = gym.spaces.Box(np.float32([-2.0, 0.1]), np.float32([2.5, 0.7]))

    def _observation(self):
        joints = self.np_random.normal([3.0, -1.0, 0.0], [0.5, 2.0, 1.0])
        return {"joints": joints, "camera": self.np_random.integers(0, 256, (8, 8, 3), np.uint8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        self.steps += 1
        return self._observation(), -float(np.abs(action).sum()), False, self.steps == 8, {}


class Cliff(gym.Env):
    """The reward is the action; odd episodes terminate after 3 steps, even ones are truncated after 5."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Box(np.float32([-0.3]), np.float32([0.7]))
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        return np.float32([0.0, 1.0]), {}

    def step(self, action):
        self.steps += 1
        odd = self.episodes % 2 == 1
        observation = np.float32([self.steps / 10, -1.0 if odd else 1.0])
        return observation, float(action[0]), odd and self.steps == 3, not odd and self.steps == 5, {}


def register():
    """Registers the environments with Gymnasium."""
    for level, environment in (("TfsacCameraArm-v0", CameraArm), ("TfsacCliff-v0", Cliff)):
        if level not in gym.registry:
            gym.register(level, environment)


def camera_networks():
    """Returns changes that shrink the networks of the camera arm."""
    image = {"scheme": [{"num_filters": 4, "kernel_size": 3, "stride": 2}, 8]}
    embedders = {"joints": {"scheme": [16]}, "camera": image}
    raw_joints = {"joints": {"scheme": "Empty"}, "camera": image}
    return {
        f"agent.networks.{name}.input_embedders_parameters": raw_joints if name == "q" else embedders
        for name in ("policy", "v", "q")
    }
