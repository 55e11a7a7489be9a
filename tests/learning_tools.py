"""A task of one step that is learned in seconds."""

from tfsac.testing import tiny_preset


def one_step_task(**changes):
    """Returns a run whose policy learns to repeat what it sees."""
    usual = {
        "environment__filters__reward_rescale_factor": 20.0,
        "schedule__heatup_steps": 200,
        "schedule__improve_steps": 1500,
        "schedule__evaluation_steps": "EnvironmentEpisodes(50)",
        "schedule__steps_between_evaluation_periods": 1700,
        "agent__networks__*__learning_rate": 3e-3,
    }
    return tiny_preset("tfsac.testing:Identity-v0", **usual | changes)
