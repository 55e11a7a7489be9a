"""A task of one step that is learned in seconds."""

from toys import tiny_preset

from tfsac.parameters import soft_actor_critic_networks


def one_step_task(**changes):
    """Returns a run whose policy learns to repeat what it sees."""
    usual = {
        "environment__filters__reward_rescale_factor": 20.0,
        "schedule__heatup_steps": 200,
        "schedule__improve_steps": 1500,
        "schedule__evaluation_steps": "EnvironmentEpisodes(50)",
        "schedule__steps_between_evaluation_periods": 1700,
        "agent__networks": soft_actor_critic_networks((16, 16), learning_rate=3e-3, batch_size=32),
    }
    return tiny_preset("toys:Identity-v0", **usual | changes)
