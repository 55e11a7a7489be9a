"""Asynchronous collection: acting weights, resuming and errors."""

import dataclasses
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from toys import tiny_preset

from tfsac.environments import EnvironmentFailure
from tfsac.parameters import RunParameters
from tfsac.training import Callback, NonFiniteError, Trainer
from tfsac.training.updates import Updates
from tfsac.types import UpdateResult

RUN = RunParameters(seed=1, checkpoint_save_steps=50, updates_between_diagnostics=1)
ASYNCHRONOUS = dataclasses.replace(RUN, asynchronous_collection=True)
GROUPED = {
    "agent__algorithm__num_consecutive_playing_steps": 10,
    "agent__algorithm__num_consecutive_training_steps": 10,
    "schedule__improve_steps": 60,
    "schedule__steps_between_evaluation_periods": 1000,
}


class Spy(Callback):
    """Records the first policy kernel of each step and after each call of updates."""

    def on_training_begin(self, trainer):
        self.acted, self.learned, self.order = [], [kernel(trainer.agent)], []
        actor, learner, memory = trainer._collector.policy, trainer.agent, trainer.memory
        act, update, sample = actor.act, learner.update, memory.sample
        set_priorities = getattr(memory, "update_priorities", None)

        def watched_act(*arguments):
            forward = actor.forwards["policy"]
            self.acted.append(forward.weights[0] if forward.variables else kernel(actor))
            return act(*arguments)

        def watched_update(batch):
            result = update(batch)
            self.learned.append(kernel(learner))
            return result

        actor.act, learner.update = watched_act, watched_update
        memory.sample = lambda *arguments: self.order.append("sample") or sample(*arguments)
        memory.update_priorities = lambda priority: self.order.append("set") or set_priorities(priority)


def kernel(agent):
    return agent.networks["policy"].trainable_variables[0].numpy()


def run_with_spy(run_dir, preset, run=ASYNCHRONOUS, **kwargs):
    spy = Spy()
    trainer = Trainer(preset, run_dir, run, callbacks=[spy], quiet=True, **kwargs)
    trainer.run()
    return trainer, spy


@pytest.mark.parametrize("asynchronous", [False, True])
def test_checkpoint_in_hook_has_pending_priorities(asynchronous):
    result, log = UpdateResult(np.zeros((1, 1)), np.float32([[0.5, 2.0]]), [], np.ones((1, 1), bool)), []
    agent = SimpleNamespace(update=lambda batch: result, policy=None)

    def save(*_):
        updates.wait()  # every save waits
        log.append(updates.arrays())

    memory = SimpleNamespace(update_priorities=lambda priority: log.append("applied"))
    updates = Updates(agent, memory, SimpleNamespace(sync_from=lambda *_: None), save, asynchronous)
    updates.start("batch") if asynchronous else updates.take("batch", result)
    updates.finish()
    updates.close()
    saved_arrays, applied = log
    np.testing.assert_array_equal(saved_arrays["updates/priority"], result.priority)
    assert applied == "applied" and updates.arrays() == {}


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("updates")]


# An activation that the NumPy forward pass does not support.
ELU = {"agent__networks__policy__input_embedders_parameters__observation__activation_function": "elu"}


@pytest.mark.parametrize("graph", [False, pytest.param(True, marks=pytest.mark.acceptance)])
@pytest.mark.slow
def test_acting_weights_are_one_call_old(tmp_path, graph):
    changes = {**GROUPED, **(ELU if graph else {})}
    often = dataclasses.replace(ASYNCHRONOUS, checkpoint_save_steps=7)  # does not change the acting weights
    trainer, spy = run_with_spy(
        tmp_path / "run", tiny_preset(**{**changes, "schedule__steps_between_evaluation_periods": 30}), often
    )
    assert bool(trainer._collector.policy.forwards["policy"].variables) != graph
    assert trainer.counters.updates == 60 and len(spy.learned) == 7 and len(spy.acted) == 160
    # The first call starts after step 110, so steps 101 to 120 use the initial weights.
    for step in range(100, 160):
        call = max((step - 100) // 10 - 1, 0)
        np.testing.assert_array_equal(spy.acted[step], spy.learned[call], err_msg=str(step))
    assert not np.array_equal(spy.learned[0], spy.learned[-1]) and not threads()


def arrays_of(trainer):
    """Returns all arrays of a run by name."""
    arrays = {f"variable {i}": variable.numpy() for i, variable in enumerate(trainer.agent.variables)}
    arrays |= {f"acting {i}": array for i, array in enumerate(trainer._collector.actor_weights)}
    return {**arrays, **trainer.memory.state(), "rows": trainer.memory.between(0, trainer.memory.total_rows)}


def assert_equal(one, other):
    one, other = arrays_of(one), arrays_of(other)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.slow
def test_run_is_independent_of_evaluation_saving_and_resuming(tmp_path):
    def preset(**more):
        prioritized = {"agent__memory": {"kind": "prioritized", "max_size": 1000}}
        return tiny_preset(**{**GROUPED, **prioritized, "schedule__improve_steps": 100, **more})

    rarely = dataclasses.replace(ASYNCHRONOUS, checkpoint_save_steps=500)
    reference, spy = run_with_spy(tmp_path / "plain", preset(), rarely)
    assert reference._updates.pending is not None and reference._collector.actor_weights
    assert spy.order == [*["sample", "set"] * 9, "sample"]  # the last priorities are in the checkpoint
    often = dataclasses.replace(ASYNCHRONOUS, checkpoint_save_steps=25)
    saved, _ = run_with_spy(tmp_path / "saved", preset(schedule__steps_between_evaluation_periods=33), often)
    assert_equal(reference, saved)
    for step in (125, 150):  # in the middle and at the start of a call
        folder = tmp_path / f"resumed{step}"
        with pytest.raises(RuntimeError, match="stop here"):
            Trainer(preset(), folder, rarely, callbacks=[FailAt(step)], quiet=True).run()
        resumed, spy = run_with_spy(folder, preset(), rarely, resume=True)
        assert len(spy.acted) == 200 - step
        assert_equal(reference, resumed)


class FailAt(Callback):
    """Raises an error at a step."""

    def __init__(self, step):
        self.step = step

    def on_step(self, trainer):
        if trainer.counters.env_steps == self.step:
            raise RuntimeError("stop here")


@pytest.mark.slow
def test_failed_update_ends_the_run(tmp_path):
    preset = tiny_preset(**GROUPED, agent__networks__q__learning_rate=1e30)
    with pytest.raises(NonFiniteError, match=r"at update \d+"):
        run_with_spy(tmp_path / "run", preset)
    assert not threads()


@pytest.mark.slow
def test_environment_failure_saves_pending_updates(tmp_path, capsys):
    preset = tiny_preset(**GROUPED)
    trainer = Trainer(preset, tmp_path / "run", ASYNCHRONOUS)
    step = trainer.environments.step

    def fail_at_125(action):
        if trainer.counters.env_steps == 125:
            raise EnvironmentFailure("broken")
        return step(action)

    trainer.environments.step = fail_at_125
    with pytest.raises(EnvironmentFailure):
        trainer.run()
    assert "continues from the last checkpoint" in capsys.readouterr().out and not threads()
    resumed = Trainer(preset, tmp_path / "run", ASYNCHRONOUS, resume=True, quiet=True)
    assert (resumed.counters.env_steps, resumed.counters.updates, int(resumed.agent.updates)) == (125, 20, 20)
    resumed.environments.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset",
    [tiny.taac, lambda: tiny.acer(lstm=True)],
    ids=["TAAC", "ACER with LSTM"],
)
def test_stateful_policies_resume_exactly(tmp_path, preset):
    reference = Trainer(preset(), tmp_path / "plain", ASYNCHRONOUS, quiet=True)
    reference.run()
    with pytest.raises(RuntimeError, match="stop here"):
        Trainer(preset(), tmp_path / "resumed", ASYNCHRONOUS, callbacks=[FailAt(77)], quiet=True).run()
    resumed = Trainer(preset(), tmp_path / "resumed", ASYNCHRONOUS, resume=True, quiet=True)
    before = kernel(resumed.agent)
    resumed.run()
    assert reference.counters == resumed.counters and not np.array_equal(before, kernel(resumed.agent))
    assert_equal(reference, resumed)
