"""`tfsac check` and `check_environment` report everything about an environment at once."""

import dataclasses
import random
import re
import sys

import gymnasium as gym
import numpy as np
import pytest
from tfsac.networks.observations import MEDIUM, usual_convolutions

import tfsac
from tfsac import cli
from tfsac.environments.check import EnvironmentFailure, check, time_limit_of
from tfsac.environments.checked_returns import CheckedReturns
from tfsac.environments.env_fn import making
from tfsac.parameters import EnvironmentParameters

Box = gym.spaces.Box
ZEROS = np.zeros(2, np.float32)


class Plain(gym.Env):
    """Is fine, but for what a test changes."""

    def __init__(self, action=None, space=None, **changes):
        self.action_space = action or Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = space or Box(-10.0, 10.0, (2,), np.float32)
        self.changes = changes

    def drawn(self):
        return np.resize(self.np_random.normal(size=2).astype(np.float32), self.observation_space.shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.last = 0, self.np_random.integers(6, 9)
        return self.drawn(), {}

    def step(self, action):
        self.steps += 1
        parts = {
            "observation": self.drawn(),
            "reward": 1.0,
            "terminated": self.steps == self.last,
            "truncated": False,
            "info": {},
        }
        return tuple({**parts, **self.changes}.values())


class Reusing(Plain):
    array = np.zeros(2, np.float32)

    def drawn(self):
        self.array[:] = self.np_random.normal(size=2)
        return self.array


class Doubling(Plain):
    def step(self, action):
        action *= 2
        return super().step(action)


class Lasting(Plain):
    """Returns its time limit of 6 steps as an end of the task."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 6, truncated, info


class Unseeded(Plain):
    def drawn(self):
        return np.float32([np.random.normal(), random.random()])


class Outliving(Plain):
    count = 0

    def drawn(self):
        self.count += 1
        return np.float32([self.count / 1000, 0])


gym.register("Plain-v0", entry_point=Plain)
PLAIN = f"{__name__}:Plain-v0"


class Undrawn(Plain):
    """Names a render mode that its constructor does not take."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self):
        super().__init__()


def test_render_modes_that_the_constructor_does_not_take_are_a_warning():
    [warning] = tfsac.check_environment(Undrawn, num_steps=20).warnings
    assert warning.startswith("metadata names the render modes rgb_array, but the constructor takes no render_mode")
    drawn = tfsac.check_environment(lambda: gym.make("CartPole-v1"), num_steps=20)
    assert not [text for text in drawn.warnings if "render" in text]


def test_terminated_and_truncated_episodes_are_counted_apart():
    report = tfsac.check_environment(lambda: gym.wrappers.TimeLimit(Plain(), 5), num_steps=20)
    assert "ended episodes: 4 (0 terminated, 4 truncated), after 5 steps" in str(report)


def test_a_good_environment_has_neither_problems_nor_warnings():
    report = tfsac.check_environment(Plain, num_steps=50)
    assert report.usable and report.problems == report.warnings == []
    assert (
        "ok       ended episodes: 7 (7 terminated, 0 truncated), after 7 steps on average, with a mean return of 6.857"
        in str(report)
    )
    assert "ok       no time limit is known: if an episode may never end" in str(report)
    assert str(report).startswith("Plain:\n") and str(report).endswith("\nusable")


def test_all_problems_are_told_at_once():
    wrong = {"observation": np.zeros(3), "reward": "1", "terminated": None, "truncated": 0.5, "info": []}
    report = tfsac.check_environment(Plain(Box(-1.0, np.inf, (1,)), **wrong))
    assert not report.usable
    text = "\n".join(report.problems)
    for words in (
        "finite bounds",
        "TransformAction",
        "of the shape (2,)",
        "is one number",
        "terminated is",
        "truncated is",
        "info is a dict",
    ):
        assert words in text


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"observation": np.float32([0, np.nan])},
            "observation 'observation' must be finite (environment 0, step 1, entry 1). Received: nan",
        ),
        ({"reward": np.inf}, "the reward must be finite (environment 0, step 1). Received: inf"),
        ({"reward": np.nan}, "the reward must be finite (environment 0, step 1). Received: nan"),
    ],
)
def test_what_is_not_finite_is_a_problem_told_once_with_its_step(changes, words):
    report = tfsac.check_environment(Plain(**changes), num_steps=20)
    assert report.problems == [words]
    assert not [text for kind, text in report.findings if kind == "ok" and ("nan" in text or "inf" in text)], report


def test_an_observation_of_reset_that_is_not_finite_is_a_problem():
    class Lost(Plain):
        def drawn(self):
            return np.float32([np.nan, 0]) if self.steps == 0 else ZEROS

    assert tfsac.check_environment(Lost, num_steps=20).problems == [
        "observation 'observation' must be finite (environment 0, step 0, entry 0). Received: nan"
    ]


def test_other_dtypes_than_the_space_has_are_a_warning():
    wide = tfsac.check_environment(lambda: Plain(observation=np.zeros(2)), num_steps=20)
    assert wide.usable and wide.warnings == [
        "observation 'observation' is returned as float64 and becomes float32, as its space says"
    ]


def test_the_first_entry_beyond_a_bound_is_named():
    class Leaving(Plain):
        def drawn(self):
            value = np.full(self.observation_space.shape, 0.5, np.float32)
            value.flat[-1] = -10.5 if self.steps == 5 else 0.5
            return value

    assert tfsac.check_environment(Leaving, num_steps=50).warnings == [
        "observation 'observation' leaves the bounds of its space: entry 1 was -10.5 at step 5, its bound -10.0; "
        "training does not mind, other libraries may"
    ]
    table = tfsac.check_environment(lambda: Leaving(space=Box(0.0, 0.9, (2, 2))), num_steps=50)
    assert "entry (1, 1) was -10.5 at step 5, its bound 0.0; " in table.warnings[-1]


@pytest.mark.parametrize("side", [3, 35, 36, 84])
def test_the_convolutions_that_are_named_are_those_of_training(side):
    space = Box(0, 255, (side, 90, 1), np.uint8)
    report = tfsac.check_environment(Plain(space=space, observation=space.sample()), num_steps=5)
    medium = usual_convolutions(space.shape) == MEDIUM
    convolutions = "the convolutions of the scheme Medium" if medium else "convolutions with a stride of 2"
    assert f"presets for vectors give it {convolutions}; " in str(report)


def test_an_image_with_its_channels_first_is_a_warning():
    space = Box(0, 255, (3, 84, 84), np.uint8)
    report = tfsac.check_environment(Plain(space=space, observation=space.sample()), num_steps=5)
    assert any("has its channels first" in text for text in report.warnings) and "the scheme" not in str(report)


@pytest.mark.parametrize(
    "make, words",
    [
        (Reusing, "a step writes into the array of the observation before"),
        (Unseeded, "it draws from NumPy's or Python's global random numbers: use self.np_random"),
        (Outliving, "something outlives reset"),
        (Doubling, "step writes into the action that it is given"),
        (lambda: Plain(terminated=False), "there is no time limit known"),
        (Lasting, "every episode was terminated after exactly 6 steps: if that is a time limit"),
        (lambda: Plain(observation=np.float32([0, 9e5])), "leaves the bounds of its space"),
        (lambda: Plain(observation=np.float32([0, 9e5])), "see environment.filters.observation_normalization"),
        (lambda: Plain(reward=-2e4), "see environment.filters.reward_rescale_factor"),
        (lambda: Plain(Box(-1e6, 1e6, (1,))), "the bounds of the actions are as large as 1e+06"),
        (lambda: Plain(space=Box(0.0, 1.0, (8, 8, 3))), "has the shape of an image but dtype float32"),
    ],
)
def test_what_may_be_meant_so_is_a_warning(make, words):
    report = tfsac.check_environment(make, num_steps=20)
    assert any(words in text for text in report.warnings), report


def test_rewards_that_never_differ_are_a_warning_where_no_episode_is_terminated():
    report = tfsac.check_environment(lambda: gym.wrappers.TimeLimit(Plain(terminated=False), 50), num_steps=200)
    assert report.warnings == [
        "every reward was 1, and no episode was terminated: random actions meet nothing to learn from"
    ]
    assert not tfsac.check_environment(lambda: gym.make("CartPole-v1"), num_steps=200).warnings


def test_a_step_that_changes_its_action_is_not_taken_for_missing_seeds():
    report = tfsac.check_environment(Doubling, num_steps=50)
    assert len(report.warnings) == 1 and "the same seed and actions give the same trajectory" in str(report)


class Old(Plain):
    def reset(self):
        return ZEROS, {}


class Optionless(Plain):
    def reset(self, seed=None):
        return ZEROS, {}


@pytest.mark.parametrize("env", [Old, Optionless])
def test_a_reset_of_other_arguments_is_told_how_it_is_called(env):
    for problem in (tfsac.check_environment(env).problems[0], raised_by_reset(env())):
        assert problem.startswith("reset must take seed and options, as in def reset(self, *, seed=None, options=None)")
        assert "unexpected keyword argument" in problem.partition("Received: ")[2]


def raised_by_reset(env):
    with pytest.raises(EnvironmentFailure) as raised:
        CheckedReturns(env).reset(seed=1)
    return str(raised.value)


def test_what_raises_is_a_problem_with_its_line():
    def broken():
        return Plain(**{"observation": ZEROS, "reward": 1}[0])

    assert f"({__file__}, line " in tfsac.check_environment(broken).problems[0]
    env = Plain()
    env.step = lambda action: {}["gear"]
    assert tfsac.check_environment(env).problems[0].startswith("step raised. Received: KeyError: 'gear' (")


@pytest.mark.parametrize("key", ["x y", "größe", "*", "c/d", "_x", "", "self", "None", "action", "Action", "noise"])
def test_keys_that_name_no_input_of_a_policy_are_refused(key):
    space = gym.spaces.Dict({key: Box(-1.0, 1.0, (2,)), "other": Box(-1.0, 1.0, (2,))})
    with pytest.raises(ValueError, match=f"begin with a letter or a digit.* Received: {re.escape(repr(key))}"):
        check(Plain(space=space))


@pytest.mark.parametrize(
    "first, second", [("a-b", "a.b"), ("a.b", "a_b"), ("Arm", "arm"), ("Action_Mask", "action_mask")]
)
def test_keys_that_name_the_same_input_of_a_policy_are_refused_and_told_by_check(first, second):
    mask = gym.spaces.MultiBinary(2) if second == "action_mask" else Box(-1.0, 1.0, (2,))
    space = gym.spaces.Dict({first: Box(-1.0, 1.0, (2,)), second: mask})
    with pytest.raises(ValueError, match=f"'{first}' and '{second}' have the same name; rename one .* Received: "):
        check(Plain(gym.spaces.Discrete(2), space=space))
    assert any(
        "have the same name" in problem
        for problem in tfsac.check_environment(Plain(gym.spaces.Discrete(2), space=space)).problems
    )


def test_bounds_whose_difference_no_float32_holds_are_refused():
    with pytest.raises(ValueError, match=r"high - low .* Received: low=-3\.\S+, high=3\.\S+ in dimension 0"):
        check(Plain(action=Box(-3e38, 3e38, (1,))))


def test_observations_that_are_no_arrays_do_not_end_the_report():
    graphs = gym.spaces.Graph(Box(-1.0, 1.0, (2,)), None)

    class Graphs(Plain):
        def drawn(self):
            return self.observation_space.sample()

    assert (
        tfsac.check_environment(Graphs(space=graphs), num_steps=3).problems[0].startswith("observations must be a Box")
    )


def close_raises():
    raise ValueError("stuck")


@pytest.mark.parametrize("how", [close_raises, sys.exit])
def test_what_close_raises_is_a_warning(how, capsys):
    class Closing(Plain):
        def close(self):
            how()

    report = tfsac.check_environment(Closing, num_steps=20)
    assert report.usable and report.warnings[0].startswith("close raised. Received: ")
    gym.register("Closing-v0", entry_point=Closing)
    assert cli.run(["check", f"--level={__name__}:Closing-v0", "--num_steps=20"]) == 0
    del gym.registry["Closing-v0"]
    assert "warning  close raised. Received: " in capsys.readouterr().out


def test_bytes_that_are_no_image_are_told_like_other_large_values():
    class Bytes(Plain):
        def drawn(self):
            return np.uint8([0, 255])

    report = tfsac.check_environment(lambda: Bytes(space=Box(0, 255, (2,), np.uint8)), num_steps=20)
    assert any("as large as 255; see environment.filters.observation_normalization" in x for x in report.warnings)
    image = Box(0, 255, (8, 8, 1), np.uint8)
    report = tfsac.check_environment(lambda: Plain(space=image, observation=np.full((8, 8, 1), 255, np.uint8)), 20)
    assert not any("as large as" in text for text in report.warnings)


class Finicky(Plain):
    """Takes what only training gives it: actions of policies, float32, and seeds of episodes below 2^31."""

    made = 0

    def __init__(self, fails=""):
        super().__init__(Box(-2.0, 2.0, (1,), np.float64))
        Finicky.made += 1
        self.fails = fails
        if fails == "second" and Finicky.made > 1:
            raise OSError("port in use")

    def reset(self, *, seed=None, options=None):
        if self.fails == "large seeds" and seed > 2**16:
            raise ValueError("seed too large")
        assert np.int32(seed) == seed
        return super().reset(seed=seed, options=options)

    def step(self, action):
        assert self.fails != "float32" or action.dtype == np.float64
        return super().step(action)


@pytest.mark.parametrize(
    "fails, words",
    [("", None), ("large seeds", "seed too large"), ("float32", "step raised"), ("second", "port in use")],
)
def test_the_check_makes_resets_and_steps_environments_as_training_does(fails, words, monkeypatch):
    monkeypatch.setattr(Finicky, "made", 0)
    problems = tfsac.check_environment(lambda: Finicky(fails), num_steps=50).problems
    assert Finicky.made == 2
    assert not problems if words is None else len(problems) == 1 and words in problems[0]


def test_the_command_makes_as_many_environments_as_its_preset(monkeypatch, capsys):
    monkeypatch.setattr(Finicky, "made", 0)
    monkeypatch.setitem(gym.registry, "Finicky-v0", gym.envs.registration.EnvSpec("Finicky-v0", Finicky))
    assert cli.run(["check", "--level=Finicky-v0", "--num_steps=50", "--set=environment.num_envs=3"]) == 0
    assert Finicky.made == 4 and "51 random steps" in capsys.readouterr().out


class Strict(Plain):
    """May only be reset when its episode is over."""

    over = True

    def reset(self, *, seed=None, options=None):
        if not self.over:
            raise RuntimeError("the episode is not over")
        self.over = False
        return super().reset(seed=seed, options=options)

    def step(self, action):
        result = super().step(action)
        self.over = result[2]
        return result


@pytest.mark.parametrize("env", [Strict, Strict()], ids=["a function", "an environment"])
def test_an_environment_that_is_only_reset_after_its_episode_is_usable(env):
    report = tfsac.check_environment(env, num_steps=20)
    assert report.usable, report
    if isinstance(env, gym.Env):
        assert any("reset raised" in text and "not over" in text for text in report.warnings)
    else:
        assert "the same seed and actions give the same trajectory" in str(report)


def test_a_reward_that_no_float32_holds_is_a_problem():
    report = tfsac.check_environment(lambda: Plain(reward=1e300), num_steps=5)
    assert report.problems == ["the reward must fit into a float32, below 3.4e+38. Received: 1e+300"]


def test_masked_actions_are_valid_ones():
    report = tfsac.check_environment(
        lambda: gym.make("tfsac.testing:DiscreteIdentity-v0", masked=True, disable_env_checker=True), 50
    )
    assert report.usable, report


class Masked(Plain):
    """Three actions, of which `mask` says whether they are valid, as do the observations' other entries."""

    def __init__(self, mask):
        actions = gym.spaces.Discrete(3)
        super().__init__(actions, gym.spaces.Dict(position=Box(-1.0, 1.0, (2,)), action_mask=gym.spaces.MultiBinary(3)))
        self.mask = mask

    def drawn(self):
        return {"position": ZEROS, "action_mask": self.mask}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros(3, np.int8), "leaves no valid action (environment 0, step 0). Received: [0 0 0]"),
        (np.full(3, 0.5, np.float32), "must hold 0 and 1. Received: [0.5 0.5 0.5]"),
        (np.ones(4, np.int8), "must have the shape (3,). Received: (4,)"),
        (np.array([2, 1, 1], np.int8), "must hold 0 and 1. Received: [2 1 1]"),
    ],
)
def test_masks_that_training_refuses_are_problems(mask, words):
    report = tfsac.check_environment(Masked(mask), 20)
    assert [one.text for one in report.findings if one.kind == "problem"] == [f"'action_mask' {words}"]


class Frames(Plain):
    """A stack of three numbered frames, the newest first or last."""

    def __init__(self, newest_first):
        super().__init__(space=tfsac.environments.FrameStack(4, 4, 3))
        self.newest_first, self.steps = newest_first, 0

    def drawn(self):
        frames = [np.full((4, 4), max(self.steps - i, 0), np.uint8) for i in range(3)]
        return np.stack(frames if self.newest_first else frames[::-1], axis=-1)


def test_a_frame_stack_in_another_order_is_a_problem():
    assert tfsac.check_environment(Frames(False), 20).usable
    report = tfsac.check_environment(Frames(True), 20)
    (problem,) = [one.text for one in report.findings if one.kind == "problem"]
    assert "a step drops one and adds one last; " in problem and problem.endswith("Received: other frames")


def test_a_frame_stack_that_begins_with_other_frames_is_a_problem():
    class Padded(Frames):
        def drawn(self):
            return super().drawn() + np.array([0, 0, 1], np.uint8)

    report = tfsac.check_environment(Padded(False), 20)
    (problem,) = [one.text for one in report.findings if one.kind == "problem" and "a reset repeats" in one.text]
    assert problem.endswith("Received: other frames")


@pytest.mark.parametrize("name", ["observation", "reward"])
def test_running_statistics_of_a_wrapper_are_refused_but_for_frozen_ones(name):
    wrapper = getattr(gym.wrappers, f"Normalize{name.capitalize()}")
    wrapped = gym.wrappers.TimeLimit(wrapper(Plain()), 5)
    message = rf"set environment\.filters\.{name}_normalization=true\. Received: {wrapper.__name__}$"
    with pytest.raises(ValueError, match=message):
        tfsac.environments.checked(wrapped)
    assert not tfsac.check_environment(lambda: gym.wrappers.TimeLimit(wrapper(Plain()), 5), 20).usable
    wrapped.env.update_running_mean = False
    tfsac.environments.checked(wrapped)


def test_a_limit_beyond_that_of_the_function_is_refused_and_a_shorter_one_holds():
    def made(steps):
        return tfsac.environments.maker(EnvironmentParameters(max_episode_steps=steps), lambda: gym.make("Pendulum-v1"))

    with pytest.raises(ValueError, match=r"earlier than .* Received: max_episode_steps=300, and a TimeLimit of 200$"):
        made(300)()
    assert [time_limit_of(made(steps)()) for steps in (None, 200, 100)] == [200, 200, 100]


@dataclasses.dataclass
class Parametrised(Plain):
    mass: float = 1.0

    def __post_init__(self):
        super().__init__()


def test_an_environment_may_have_an_equality_of_its_own(tmp_path):
    assert tfsac.check_environment(Parametrised, 20).usable
    made = making(Parametrised)
    assert made() == made()
    with pytest.raises(ValueError, match="twice"):
        same = Parametrised()
        again = making(lambda: same)
        again(), again()


def test_metadata_may_be_none():
    class Forgotten(Plain):
        metadata = None

    assert tfsac.check_environment(Forgotten, 20).usable


def test_an_observation_that_is_no_vector_or_image_is_told_how_it_is_read():
    report = tfsac.check_environment(Plain(space=Box(-10.0, 10.0, (8, 2))), 20)
    (warning,) = [one.text for one in report.findings if one.kind == "warning"]
    assert (
        "shape (8, 2), neither a vector nor an image" in warning
        and 'input_embedders_parameters={"observation": {"scheme": [256], "flatten": true}}' in warning
    )
    both = gym.spaces.Dict({"grid": Box(-10.0, 10.0, (8, 2)), "arm": Box(-10.0, 10.0, (3,))})
    report = tfsac.check_environment(Plain(space=both, observation=both.sample()), 20)
    (told,) = [one.text for one in report.findings if "neither a vector" in one.text]
    assert told.endswith("docs/parameters.md#observations-that-a-preset-does-not-describe")


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"num_steps is at least 1. Received: 0"):
        tfsac.check_environment(Plain, num_steps=0)
    with pytest.raises(TypeError, match=r"env_fn is a function"):
        tfsac.check_environment("Pendulum-v1")


def test_the_command_prints_the_report_and_its_status_says_whether_it_is_usable(capsys):
    assert cli.run(["check", f"--level={PLAIN}", "--num_steps=20"]) == 0
    assert "\nusable\n" in capsys.readouterr().out
    assert cli.run(["check", f"--level={PLAIN}", "--set=environment.kwargs.reward=one"]) == 1
    assert "  problem  step must return" in (printed := capsys.readouterr().out) and "not usable: 1 problem" in printed
    assert (
        cli.run(["check", "--preset=pendulum_sac", "--level=CartPole-v1", "--num_steps=20"]) == 1
    )  # the agent does not fit
    assert cli.run(["check", "--preset=pendulum_sac", "--num_steps=20"]) == 0
    capsys.readouterr()
    team = ["--level=tfsac.testing:TeamIdentity-v0", "--set=environment.kwargs.discrete=false"]
    assert cli.run(["check", "--preset=taac_simple_control", *team, "--num_steps=20"]) == 1
    assert "acts alone" in capsys.readouterr().out
    alone = ["--level=Pendulum-v1", "--set=environment.kwargs={}"]
    assert cli.run(["check", "--preset=simple_spread_twin_sac", *alone, "--num_steps=20"]) == 1
    assert "an embedder for an observation that the environment does not give" in capsys.readouterr().out
    assert cli.run(["check", "--preset=pendulum_sac", "--num_steps=20", "--set=environment.visible_entries=[9]"]) == 1
    assert "visible_entries of" in capsys.readouterr().out


def test_the_command_builds_the_agent_that_is_set(capsys):
    scheme = "--set=agent.networks.q.input_embedders_parameters.observation.scheme="
    for level in (["--preset=pendulum_twin_sac"], ["--level=Pendulum-v1"]):
        assert cli.run(["check", *level, "--num_steps=20", f"{scheme}[16]"]) == 0
        capsys.readouterr()
        convolution = '[{"num_filters": 4, "kernel_size": 3, "stride": 1}]'
        assert cli.run(["check", *level, "--num_steps=20", f"{scheme}{convolution}"]) == 1
        assert "Convolutions need an image" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, words",
    [
        ([], "An environment is checked: --level, or --preset. Received: neither"),
        (["--level=Pendulun-v1"], "Did you mean 'Pendulum-v1'"),
    ],
)
def test_a_command_that_checks_nothing_is_refused(flags, words):
    with pytest.raises(ValueError, match=words):
        cli.run(["check", *flags])


def test_the_command_needs_no_tensorflow(run_python):
    program = "import sys; from tfsac import cli; print(cli.run(['check', '--level=Pendulum-v1']), 'tensorflow' in sys.modules)"
    assert run_python(program).splitlines()[-1] == "0 False"


class Clock(Plain):
    """Observes the time beside a number."""

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        self.now += 1
        return np.array([self.now, 0.5]), reward, terminated, truncated, info

    def reset(self, *, seed=None, options=None):
        self.now = 1.7e9
        return np.array([self.now, 0.5]), super().reset(seed=seed, options=options)[1]


def test_what_float32_cannot_tell_apart_is_told():
    report = tfsac.check_environment(lambda: Clock(space=Box(-np.inf, np.inf, (2,), np.float64)), num_steps=50)
    [told] = [text for text in report.warnings if "float32" in text]
    assert re.search(r"'observation': entry 0 varies by \S+ around 1.7e\+09, .* subtract an offset", told)
    assert not any("observation_normalization" in text for text in report.warnings)


def test_a_time_limit_whose_end_a_wrapper_drops_is_told():
    class Continuing(gym.Wrapper):
        def step(self, action):
            observation, reward, terminated, _, info = self.env.step(action)
            return observation, reward, terminated, False, info

    report = tfsac.check_environment(lambda: Continuing(gym.make("Pendulum-v1")), num_steps=250)
    assert any("was played for 250 steps, though its time limit is 200" in text for text in report.warnings)
    report = tfsac.check_environment(lambda: gym.make("Pendulum-v1"), num_steps=50)
    assert not report.warnings
