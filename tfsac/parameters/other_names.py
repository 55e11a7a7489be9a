"""Names of the parameters in other libraries, so that an error can suggest ours."""

from __future__ import annotations

HIDDEN_LAYERS = "agent.hidden_layers"  # sets the layers of policy and critics; not an actual field
# Paths in a preset by foreign name; run.NAME is a field of RunParameters.
PATHS = {
    "gamma": "agent.algorithm.discount",
    "tau": "agent.algorithm.rate_for_copying_weights_to_target",
    "polyak": "agent.algorithm.rate_for_copying_weights_to_target",
    "target_update_interval": "agent.algorithm.num_steps_between_copying_online_weights_to_target",
    "n_steps": "agent.algorithm.n_step",
    "train_freq": "agent.algorithm.num_consecutive_playing_steps",
    "update_every": "agent.algorithm.num_consecutive_playing_steps",
    "gradient_steps": "agent.algorithm.num_consecutive_training_steps",
    "utd_ratio": "agent.algorithm.num_consecutive_training_steps",
    "policy_delay": "agent.algorithm.num_updates_between_policy_updates",
    "ent_coef": "agent.algorithm.temperature",
    "alpha": "agent.algorithm.temperature",
    "buffer_size": "agent.memory.max_size",
    "replay_size": "agent.memory.max_size",
    "lr": "agent.networks.*.learning_rate",
    "actor_lr": "agent.networks.policy.learning_rate",
    "critic_lr": "agent.networks.q.learning_rate",
    "max_grad_norm": "agent.networks.*.clip_gradients",
    "optimizer_class": "agent.networks.*.optimizer_type",
    "activation_fn": "agent.networks.*.middleware_parameters.activation_function",
    "net_arch": HIDDEN_LAYERS,
    "hidden_sizes": HIDDEN_LAYERS,
    "n_critics": "agent.networks.q.head_parameters.num_critics",
    "twin_critic": "agent.networks.q.head_parameters.num_critics",
    "action_noise": "agent.exploration",
    "env_id": "environment.level",
    "n_envs": "environment.num_envs",
    "max_ep_len": "environment.max_episode_steps",
    "reward_scale": "environment.filters.reward_rescale_factor",
    "total_timesteps": "schedule.improve_steps",
    "learning_starts": "schedule.heatup_steps",
    "start_steps": "schedule.heatup_steps",
    "eval_freq": "schedule.steps_between_evaluation_periods",
    "n_eval_episodes": "schedule.evaluation_steps",
    "save_freq": "run.checkpoint_save_steps",
}


def normalized(name: str) -> str:
    """Returns a name in lower case, with underscores instead of hyphens."""
    return name.lower().replace("-", "_")
