"""What other libraries call the parameters, so that an error can name ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

HIDDEN_LAYERS = "agent.hidden_layers"  # stands for the layers of policy and critics; no field of its own
_CRITIC_LAYERS = "agent.networks.q.head_parameters.network_layers_sizes"
_TEMPERATURE = "agent.algorithm.temperature"
_FIXED = f'{_TEMPERATURE}={{"kind": "fixed", "alpha": %g}}'
# By the other name, in lower case with underscores: paths, with a value where the name alone would mislead. Of paths
# between bars a preset has one.
_PATHS: dict[str, str | tuple[str, ...]] = {
    "gamma": "agent.algorithm.discount",
    "discount_factor": "agent.algorithm.discount",
    "tau": "agent.algorithm.rate_for_copying_weights_to_target",
    "polyak": "agent.algorithm.rate_for_copying_weights_to_target=0.005",  # 1 - polyak
    "target_update_tau": "agent.algorithm.rate_for_copying_weights_to_target",
    "soft_update_tau": "agent.algorithm.rate_for_copying_weights_to_target",
    "target_theta": "agent.algorithm.rate_for_copying_weights_to_target",
    "target_update_interval": "agent.algorithm.num_steps_between_copying_online_weights_to_target",
    "target_update_period": "agent.algorithm.num_steps_between_copying_online_weights_to_target",
    "target_network_frequency": "agent.algorithm.num_steps_between_copying_online_weights_to_target",
    "n_steps": "agent.algorithm.n_step",
    "train_freq": "agent.algorithm.num_consecutive_playing_steps",
    "update_every": "agent.algorithm.num_consecutive_playing_steps",
    "update_interval": "agent.algorithm.num_consecutive_playing_steps",
    "gradient_steps": "agent.algorithm.num_consecutive_training_steps",
    "utd": "agent.algorithm.num_consecutive_training_steps",
    "utd_ratio": "agent.algorithm.num_consecutive_training_steps",
    "update_per_collect": "agent.algorithm.num_consecutive_training_steps",
    "policy_frequency": "agent.algorithm.num_updates_between_policy_updates",
    "policy_delay": "agent.algorithm.num_updates_between_policy_updates",
    "temperature": _FIXED % 0.2,
    "ent_coef": _FIXED % 0.2,
    "alpha": _FIXED % 0.2,
    "initial_temperature": "agent.algorithm.temperature.initial_alpha",
    "init_temperature": "agent.algorithm.temperature.initial_alpha",
    "alpha_lr": "agent.algorithm.temperature.learning_rate",
    "entropy_target": "agent.algorithm.temperature.target_entropy",
    "buffer_size": "agent.memory.max_size",
    "replay_size": "agent.memory.max_size",
    "replay_buffer_size": "agent.memory.max_size",
    "replay_buffer_capacity": "agent.memory.max_size",
    "replay_capacity": "agent.memory.max_size",
    "memory_size": "agent.memory.max_size",
    "minibatch_size": "agent.networks.*.batch_size",
    "mini_batch_size": "agent.networks.*.batch_size",
    "lr": "agent.networks.*.learning_rate",
    "policy_lr": "agent.networks.policy.learning_rate",
    "actor_lr": "agent.networks.policy.learning_rate",
    "learning_rate_policy": "agent.networks.policy.learning_rate",
    "q_lr": "agent.networks.q.learning_rate",
    "critic_lr": "agent.networks.q.learning_rate",
    "learning_rate_q": "agent.networks.q.learning_rate",
    "optimizer": "agent.networks.*.optimizer_type",
    "optimizer_class": "agent.networks.*.optimizer_type",
    "max_grad_norm": "agent.networks.*.clip_gradients",
    "gradient_clipping": "agent.networks.*.clip_gradients",
    "grad_clip": "agent.networks.*.clip_gradients",
    "activation": "agent.networks.*.middleware_parameters.activation_function",
    "activation_fn": "agent.networks.*.middleware_parameters.activation_function",
    "actor_fc_layers": HIDDEN_LAYERS,
    "net_arch": HIDDEN_LAYERS,
    "hidden_sizes": HIDDEN_LAYERS,
    "hidden_size": HIDDEN_LAYERS,
    "layers": HIDDEN_LAYERS,
    "network_layers_sizes": _CRITIC_LAYERS,
    "critic_joint_fc_layers": _CRITIC_LAYERS,
    "n_critics": "agent.networks.q.head_parameters.num_critics",
    "twin_critic": "agent.networks.q.head_parameters.num_critics",
    "action_noise": 'agent.exploration={"noise_std": 0.1}',
    "use_sde": 'agent.exploration={"kind": "noise_repetition"}',
    "env": "environment.level",
    "env_id": "environment.level",
    "env_name": "environment.level",
    "n_envs": "environment.num_envs",
    "num_workers": "environment.num_envs",
    "env_kwargs": "environment.kwargs",
    "max_ep_len": "environment.max_episode_steps",
    "reward_scale": "environment.filters.reward_rescale_factor",
    "reward_scale_factor": "environment.filters.reward_rescale_factor",
    "norm_obs": "environment.filters.observation_normalization",
    "clip_obs": "environment.filters.observation_clipping",
    "norm_reward": "environment.filters.return_scaling={}",
    "clip_reward": "environment.filters.reward_clipping_range",
    "total_timesteps": "schedule.improve_steps",
    "n_timesteps": "schedule.improve_steps",
    "num_timesteps": "schedule.improve_steps",
    "total_steps": "schedule.improve_steps",
    "steps": "schedule.improve_steps",
    "max_steps": "schedule.improve_steps",
    "num_iterations": "schedule.improve_steps",
    "timesteps": "schedule.improve_steps",
    "learning_starts": "schedule.heatup_steps",
    "start_steps": "schedule.heatup_steps",
    "replay_start_size": "schedule.heatup_steps",
    "initial_collect_steps": "schedule.heatup_steps",
    "random_collect_size": "schedule.heatup_steps",
    "warmup_steps": "schedule.heatup_steps",
    "eval_freq": "schedule.steps_between_evaluation_periods",
    "eval_interval": "schedule.steps_between_evaluation_periods",
    "n_eval_episodes": "schedule.evaluation_steps",
    "num_eval_episodes": "schedule.evaluation_steps",
    "num_test_episodes": "schedule.evaluation_steps",
}
_RUN_PARAMETERS = {
    "random_seed": "seed",
    "save_freq": "checkpoint_save_steps",
    "checkpoint_freq": "checkpoint_save_steps",
    "checkpoint_interval": "checkpoint_save_steps",
    "tensorboard_log": "tensorboard",
    "use_tensorboard": "tensorboard",
    "torch_deterministic": "deterministic",
}
_FLAGS = {
    **_RUN_PARAMETERS,
    "seeds": "num_seeds",
    "device": "use_cpu",
    "cuda": "use_cpu",
    "gpu": "use_cpu",
    "exp_name": "experiment_name",
    "out": "run_dir",
    "output_dir": "run_dir",
}
_ARGUMENTS = {
    "env": "env_fn",
    "environment": "env_fn",
    "make_env": "env_fn",
    "callback": "callbacks",
    "verbose": "quiet",
    "logdir": "run_dir",
    "log_dir": "run_dir",
    "log_path": "run_dir",
    "out_dir": "run_dir",
    "output_dir": "run_dir",
    "save_path": "run_dir",
    "load_path": "run_dir",
    "env_id": "level",
    "env_name": "level",
    "n_eval_episodes": "episodes",
    "num_episodes": "episodes",
    "n_episodes": "episodes",
    "pretrained": "initial_weights",
    "network_fn": "models",
    "policy_kwargs": "models",
}
_NOTES = {
    "schedule.improve_steps": " (counted from the end of the warm-up)",
    "use_cpu": " (without it a GPU is used, if TensorFlow sees one)",
    "tensorboard": " (events are in the run's folder)",
}


def meant_flag(name: str) -> str:
    """Returns the flag of `tfsac train` that another library gives this name; else the name."""
    return _FLAGS.get(_plain(name), _plain(name))


def meant_run_parameter(name: str) -> str:
    """Returns the field of `RunParameters` that another library gives this name; else the name."""
    return _RUN_PARAMETERS.get(_plain(name), _plain(name))


def meant_argument(name: str) -> str:
    """Returns the argument of a Python function that another library gives this name; else the name."""
    return _ARGUMENTS.get(_plain(name), _plain(name))


def meant_field(name: str, fields: Collection[str]) -> str | None:
    """Returns the one of a class's fields that another library gives this name, if it has it."""
    given = [meant_run_parameter(name), *(path.partition("=")[0].rpartition(".")[2] for path in _alternatives(name))]
    return next((field for field in given if field in fields), None)


def meant_paths(name: str, tree: Mapping[str, Any], value: Any = None) -> list[str]:
    """Returns the parameters of a preset that somebody may mean by an unknown name, as `--set` takes them.

    Args:
        name: such as "gamma", "batch_size" or "algorithm.discount".
        tree: the preset as plain dicts.
        value: that was given with the name.

    Returns:
        paths in the preset, with `*` for all networks, and a value after one where the name alone would mislead;
        nothing if neither the preset nor another library has such a name.
    """
    paths = dict.fromkeys([*_paths(tree), HIDDEN_LAYERS])
    same = [path for path in paths if f".{path}".endswith(f".{_plain(name)}")]
    if same and _plain(name) != "temperature":
        return [min(same, key=lambda path: ("*" not in path, path.count(".")))]
    given = [_temperature(value) if path == _FIXED % 0.2 else path for path in _alternatives(name)]
    return [path for path in given if path.partition("=")[0] in paths]


def _temperature(value: Any) -> str:
    """Returns what `--set` takes for another library's temperature: a number, or "auto" with its first value."""
    kind, _, first = str(value).partition("_")
    if kind == "auto":
        return f"{_TEMPERATURE}.initial_alpha={first or 1.0}"
    try:
        return _FIXED % float(value)
    except (TypeError, ValueError):
        return _FIXED % 0.2


def lacking(name: str) -> str:
    """Returns which agents have the parameter of this name that a preset has not, or an empty string."""
    if any(path.startswith(_TEMPERATURE) for path in _alternatives(name)):
        return " Agents with twin critics have a temperature: see the preset pendulum_twin_sac."
    return ""


def note_about(path: str) -> str:
    """Returns what somebody who knows a parameter or a flag by another name must also know, or an empty string."""
    return " (the usual one is learned)" if path.startswith(f"{_TEMPERATURE}={{") else _NOTES.get(path, "")


def _alternatives(name: str) -> list[str]:
    given = _PATHS.get(_plain(name), ())
    return [path for paths in ((given,) if isinstance(given, str) else given) for path in paths.split("|")]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the paths of a preset's parameters; what all networks have is also a path with `*`."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        yield path
        if path == "agent.networks":
            first, *others = ([*_paths(network)] for network in value.values())
            yield from (f"{path}.*.{field}" for field in first if all(field in fields for fields in others))
        if isinstance(value, Mapping) and path != "levels":  # which repeats paths
            yield from _paths(value, f"{path}.")
