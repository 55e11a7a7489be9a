"""The training loop: schedules, update counts, evaluation, failures and signals."""

import json
import os
import signal
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tiny
from toys import tiny_preset

import tfsac
from tfsac import parameters as p
from tfsac.environments import EnvironmentFailure, Filters, spec_of
from tfsac.policies import CategoricalPolicy
from tfsac.training import Callback, NonFiniteError, Policy, Trainer
from tfsac.training.evaluation import evaluate_policy
from tfsac.training.reporting import summary
from tfsac.training.schedule import Sampler, Schedule
from tfsac.training.signals import StopSignals

ONE_GRAPH = p.RunParameters(updates_between_diagnostics=1)  # traces one graph instead of two


def run_trainer(tmp_path, run=ONE_GRAPH, callbacks=(), **changes):
    trainer = Trainer(tiny_preset(**changes), tmp_path / "run", run, callbacks=callbacks, quiet=True)
    return trainer, trainer.run()


def test_complete_run(tmp_path):
    trainer, result = run_trainer(tmp_path, p.RunParameters())
    assert (result.reason, result.counters.env_steps, result.counters.updates) == ("finished", 200, 100)
    assert result.counters.episodes == 200 // 30
    lines = tiny.rows(tmp_path / "run")
    assert [row["env_steps"] for row in lines] == ["100", "200"]
    assert list(lines[0]) == trainer._reporter.csv.columns
    names = ("return_min", "return_mean", "return_max", "return_std", "length_mean")
    for row in lines:
        minimum, mean, maximum, std, length = (float(row[f"training/{name}"]) for name in names)
        assert minimum <= mean <= maximum and 0 <= std <= maximum - minimum and length == 30
    assert lines[0]["loss/policy"] == "" and np.isfinite(float(lines[1]["loss/policy"]))
    assert result.best_return == max(float(row["evaluation/return_mean"]) for row in lines)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {"preset", "run", "command", "versions", "git"} <= config.keys()
    assert trainer.agent.compiled.traces == 2  # with all metrics, and with only the losses


ALGORITHM = "agent__algorithm__"
PLAYING, TRAINING = f"{ALGORITHM}num_consecutive_playing_steps", f"{ALGORITHM}num_consecutive_training_steps"
COPYING = f"{ALGORITHM}num_steps_between_copying_online_weights_to_target"
IN_EPISODES = {"schedule__heatup_steps": "EnvironmentEpisodes(4)", "schedule__improve_steps": "EnvironmentEpisodes(2)"}


@pytest.mark.parametrize(
    ("changes", "env_steps", "updates"),
    [
        ({TRAINING: 3}, 200, 300),
        ({PLAYING: 50, TRAINING: 50}, 200, 100),
        ({"environment__num_envs": 4}, 200, 100),
        ({"environment__num_envs": 3}, 204, 102),
        ({"schedule__improve_steps": "TrainingSteps(40)"}, 140, 40),
        (IN_EPISODES, 180, 60),
        ({PLAYING: "EnvironmentEpisodes(1)", TRAINING: 7, COPYING: "TrainingSteps(1)"}, 200, 7 * 3),
    ],
)
def test_number_of_updates(changes, env_steps, updates):
    preset = tiny_preset(**changes)
    schedule, envs = Schedule(preset.schedule), preset.environment.num_envs
    sampler = Sampler(preset, SimpleNamespace(ready=True), None, schedule, 0)
    while not schedule.finished():
        schedule.count(envs, envs * ((schedule.counters.env_steps // envs + 1) % 30 == 0))
        schedule.counters.updates += sum(sampler.pending())
    assert (schedule.counters.env_steps, schedule.counters.updates) == (env_steps, updates)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 130])
def test_random_action_steps(tmp_path, steps):
    modes = []

    class Watch(Callback):
        def on_training_begin(self, trainer):
            act = trainer.agent.policy.act
            trainer.agent.policy.act = lambda o, s=(), f=None, mode="sample", steps=0: (
                modes.append(mode) or act(o, s, f, mode, steps)
            )

    run_trainer(tmp_path, callbacks=[Watch()], schedule__random_action_steps=steps)
    assert [mode for mode in modes if mode != "greedy"] == ["random"] * steps + ["explore"] * (200 - steps)


EVALUATED = {"schedule__heatup_steps": 40, "schedule__improve_steps": 20, "environment__max_episode_steps": 10}


@pytest.mark.slow
def test_training_is_independent_of_evaluation(tmp_path):
    rarely, often = ({**EVALUATED, "schedule__steps_between_evaluation_periods": steps} for steps in (60, 5))
    rarely_evaluated, _ = run_trainer(tmp_path / "a", **rarely)
    often_evaluated, _ = run_trainer(tmp_path / "b", p.RunParameters(stochastic_evaluation=True), **often)
    assert len(tiny.rows(tmp_path / "b" / "run")) == 12 > len(tiny.rows(tmp_path / "a" / "run"))
    np.testing.assert_array_equal(rarely_evaluated.memory.between(0, 60), often_evaluated.memory.between(0, 60))
    for one, other in zip(rarely_evaluated.agent.variables, often_evaluated.agent.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert rarely_evaluated._sampler.state() == often_evaluated._sampler.state()
    assert rarely_evaluated._collector.state() == often_evaluated._collector.state()


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True])
def test_best_policy_ignores_evaluations_before_updates(tmp_path, resumed, monkeypatch, capsys):
    # The policy is untrained at 50 and 100 steps.
    scores = iter([5.0, 6.0, -3.0, -2.0, -4.0])
    monkeypatch.setattr(
        "tfsac.training.evaluation.Evaluator.evaluate",
        lambda self, *where: summary("evaluation", np.full(2, next(scores)), np.ones(2)),
    )
    preset = tiny_preset(schedule__steps_between_evaluation_periods=50, schedule__improve_steps=150)

    class Interrupted(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 110:
                trainer._signals.received = signal.SIGTERM

    result = tfsac.train(preset, tmp_path / "run", ONE_GRAPH, callbacks=[Interrupted()] * resumed)
    if resumed:
        assert (result.best_return, result.best_step) == (6.0, 100)
        result = tfsac.train(preset, tmp_path / "run", ONE_GRAPH, resume=True)
    assert (result.best_return, result.best_step) == (-2.0, 200)
    assert "from before the first update" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("episodes", "accepted"), [(5, True), (4, False)])
def test_stop_at_threshold(tmp_path, episodes, accepted):
    easy = {"validation__min_reward_threshold": -1e6, "schedule__steps_between_evaluation_periods": 50}
    easy["validation__max_episodes_to_achieve_reward"] = episodes
    _, result = run_trainer(tmp_path, p.RunParameters(stop_at_threshold=True), **easy)
    # The policy is untrained at 50 and 100 steps.
    assert (result.reason, result.counters.env_steps, result.counters.updates) == ("threshold reached", 150, 50)
    assert result.accepted is accepted
    if accepted:
        return
    # As if killed before the export: the first resume exports the policy, the second one continues.
    resumed = tfsac.train(tiny_preset(**easy), tmp_path / "run", resume=True, quiet=True)
    assert (resumed.reason, resumed.counters.env_steps) == ("threshold reached", 150)
    assert (tmp_path / "run" / "policy").is_dir()
    resumed = tfsac.train(tiny_preset(**easy), tmp_path / "run", resume=True, quiet=True)
    assert (resumed.reason, resumed.counters.env_steps) == ("threshold reached", 200)


@pytest.mark.slow
def test_on_updates_receives_calls(tmp_path):
    calls, updates = [], []

    class Watch(Callback):
        def on_updates(self, trainer, metrics):
            calls.append(metrics)
            updates.append(trainer.counters.updates)

    # 80 updates take two calls: one call makes at most 64.
    changes = {
        "agent__algorithm__num_consecutive_playing_steps": 80,
        "agent__algorithm__num_consecutive_training_steps": 80,
    }
    trainer, result = run_trainer(tmp_path, callbacks=[Watch()], **changes)
    assert [len(metrics) for metrics in calls] == [64, 16] and updates == [64, 80] == [64, result.counters.updates]
    mean = dict(zip(trainer.update_metrics, np.concatenate(calls).mean(axis=0), strict=True))
    assert float(tiny.rows(tmp_path / "run")[1]["loss/q1"]) == pytest.approx(mean["loss/q1"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure_kind", "text"), [("raise", "simulator fell over"), ("observation", "must be finite")]
)
def test_environment_failure_saves_a_checkpoint(tmp_path, failure_kind, text):
    preset = tiny_preset("toys:Faulty-v0", environment__kwargs={"fail_at": 137, "how": failure_kind})
    trainer = Trainer(preset, tmp_path / "run", ONE_GRAPH, quiet=True)
    with pytest.raises(EnvironmentFailure, match=text):
        trainer.run()
    assert [path.name for path in trainer._checkpoints.saved_checkpoints()] == ["000000136"]


@pytest.mark.slow
def test_non_finite_loss_stops_and_writes_the_batch(tmp_path):
    preset = tiny_preset(
        "toys:Faulty-v0", environment__kwargs={"fail_at": 90, "how": "huge"}, agent__memory__max_size=1000
    )
    trainer = Trainer(preset, tmp_path / "run", quiet=True)
    with pytest.raises(NonFiniteError, match=r"loss/q1 is inf at update \d+") as failure:
        trainer.run()
    path = next((tmp_path / "run").glob("non_finite_update_*.npz"))
    assert str(path) in str(failure.value)
    with np.load(path) as batch:
        assert batch["reward"].shape == (32,) and batch["reward"].max() > 1e38
        assert batch["observation/observation"].shape == (32, 3)
    assert trainer._checkpoints.saved_checkpoints() == []


def poison(trainer, network):
    """Sets weights to NaN, as an undefined gradient does after finite losses."""
    for variable in trainer.agent.trained[network]:
        variable.assign(np.full(variable.shape, np.nan, np.float32))
    trainer.agent.policy.refresh()


@pytest.mark.slow
@pytest.mark.parametrize("evaluates", [False, True])
def test_non_finite_action_is_not_saved(tmp_path, evaluates):
    class Poison(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 130:
                poison(trainer, "policy")
                if evaluates:
                    trainer.evaluate()

    with pytest.raises(NonFiniteError, match=r"action is \[+nan\]+"):
        run_trainer(tmp_path, p.RunParameters(checkpoint_save_steps=120, updates_between_diagnostics=1), [Poison()])
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("0*")] == ["000000120"]


def test_evaluation_with_discrete_start_and_nan_logits():
    class Numbered(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(3, start=-1)

        def reset(self, *, seed=None, options=None):
            return np.ones(2, np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return np.ones(2, np.float32), 1.0, True, False, {}

    parameters = tiny.shrunk(tfsac.load_preset("cart_pole_discrete_sac")).agent
    acting = CategoricalPolicy.build(parameters, spec_of(Numbered()))
    policy = Policy(acting, Filters(p.FilterParameters(), acting.spec))
    for best in range(3):  # including the environment action -1
        acting.forwards = {"policy": lambda calls, best=best: [np.eye(3, dtype=np.float32)[[best]]]}
        assert evaluate_policy(policy, Numbered(), p.EnvironmentEpisodes(1)).returns.tolist() == [1.0]
    acting.forwards = {"policy": lambda calls: [np.full((1, 3), np.nan, np.float32)]}
    with pytest.raises(NonFiniteError, match="action"):
        evaluate_policy(policy, Numbered(), p.EnvironmentEpisodes(1))


def test_non_finite_weights_are_not_saved(tmp_path):
    trainer = Trainer(tiny_preset(), tmp_path / "run", ONE_GRAPH, quiet=True)
    trainer.save()
    poison(trainer, "q")
    for save in (trainer.save, lambda: trainer._evaluator.save_if_best(1.0, trainer.counters)):
        with pytest.raises(NonFiniteError, match="'q'"):
            save()
    trainer.close()
    assert [path.name for path in trainer._checkpoints.saved_checkpoints()] == ["000000000"]


class SendSignal(Callback):
    def __init__(self, number):
        self.number = number

    def on_step(self, trainer):
        if trainer.counters.env_steps == 123:
            os.kill(os.getpid(), self.number)
            os.kill(os.getpid(), self.number)  # of the same event, such as a closed terminal


def test_later_signal_has_its_previous_handler():
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        signals.received_at -= 2.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(params=[signal.SIG_DFL])
def sighup_handler(request):
    """Sets the handler of SIGHUP, which nohup ignores."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
@pytest.mark.slow
def test_signal_saves_a_resumable_checkpoint(sighup_handler, tmp_path, number):
    trainer, result = run_trainer(tmp_path, callbacks=[SendSignal(number)])
    assert (result.signal, result.counters.env_steps) == (number, 123)
    assert [path.name for path in trainer._checkpoints.saved_checkpoints()] == ["000000123"]
    resumed = Trainer(tiny_preset(), tmp_path / "run", p.RunParameters(), resume=True, quiet=True)
    assert resumed.counters.env_steps == 123
    resumed.close()


@pytest.mark.slow
@pytest.mark.parametrize("sighup_handler", [signal.SIG_IGN], indirect=True)
def test_ignored_sighup_does_not_stop_the_run(sighup_handler, tmp_path):
    _, result = run_trainer(tmp_path, callbacks=[SendSignal(signal.SIGHUP)])
    assert (result.reason, signal.getsignal(signal.SIGHUP)) == ("finished", signal.SIG_IGN)


@pytest.mark.slow
def test_signal_that_also_kills_environment_processes(tmp_path):
    changes = {"environment__num_envs": 2, "environment__vectorization": "subprocess"}
    trainer = Trainer(tiny_preset(**changes), tmp_path / "run", p.RunParameters(), quiet=True)
    collect = trainer.collect

    def kill_environments():
        if trainer.counters.env_steps == 140:
            for process in (group.process for group in trainer.environments.groups[:-1]):
                os.kill(process.pid, signal.SIGTERM)
                process.join(10)
            os.kill(os.getpid(), signal.SIGTERM)
        collect()

    trainer.collect = kill_environments
    result = trainer.run()
    assert (result.reason, result.signal, result.counters.env_steps) == ("SIGTERM", signal.SIGTERM, 140)
    assert [path.name for path in trainer._checkpoints.saved_checkpoints()] == ["000000140"]


@pytest.mark.parametrize(
    ("improve", "num_envs", "steps"),
    [
        (p.EnvironmentSteps(49_000), 1, 5_000),
        (p.EnvironmentSteps(990_000), 1, 10_000),
        (p.EnvironmentSteps(990_000), 1024, 99_100),
        (p.EnvironmentSteps(100), 8, 1_000),
        (p.TrainingSteps(5_000), 2, 20_000),
    ],
)
def test_steps_between_checkpoints(improve, num_envs, steps):
    parameters = p.ScheduleParameters(heatup_steps=p.EnvironmentSteps(1_000), improve_steps=improve)
    assert Schedule(parameters).steps_between_checkpoints(num_envs) == steps
