"""What learning.py trains: suites of groups on levels, and single tasks. Data only."""

import json
from typing import NamedTuple

TWIN, SB3 = "tfsac, twin-target SAC", "Stable-Baselines3 SAC"


class Run(NamedTuple):
    """A training run.

    `flags` are those of `tfsac train`, or of learning_sb3.py where `package` is "sb3"; the folder is not among them.
    """

    name: str
    level: str
    group: str
    seed: int
    package: str
    flags: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        program = ["tfsac", "train"] if self.package == "tfsac" else ["python", "benchmarks/learning_sb3.py"]
        return [*program, *self.flags]


def in_file_name(level: str) -> str:
    return level.replace("/", "-").replace(":", "-")


# -- suites ------------------------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """A level of a suite; `variant` distinguishes names of runs with other `kwargs` of `gymnasium.make`."""

    id: str
    published: str = ""
    kwargs: dict = {}
    variant: str = ""
    label: str = ""

    @property
    def title(self) -> str:
        return self.label or self.id

    @property
    def place(self) -> str:
        """The level as part of a file's name."""
        return in_file_name(self.id) + self.variant


class Group(NamedTuple):
    """One way to train, on every level of a suite: the package, "tfsac" or "sb3", and its flags."""

    name: str
    label: str
    package: str
    seeds: tuple[int, ...]
    flags: tuple[str, ...] = ()

    def run(self, level: Level, seed: int) -> Run:
        flags = [*self.flags, f"--level={level.id}", f"--seed={seed}"]
        if level.kwargs:
            flag = "--set=environment.kwargs=" if self.package == "tfsac" else "--env_kwargs="
            flags.append(flag + json.dumps(level.kwargs))
        name = f"{self.name}_{level.place}_seed{seed}"
        return Run(name, level.title, self.label, seed, self.package, tuple(flags))


class Suite(NamedTuple):
    """Groups on levels; a run's score is the mean of its last evaluations.

    `published` says what the numbers of that name of the levels are.
    """

    levels: tuple[Level, ...]
    groups: tuple[Group, ...]
    last_evaluations: int = 5
    published: str = ""

    def runs(self) -> list[Run]:
        """The runs in their order: the first seed of everything, then the second."""
        seeds = sorted({seed for group in self.groups for seed in group.seeds})
        return [
            group.run(level, seed)
            for seed in seeds
            for level in self.levels
            for group in self.groups
            if seed in group.seeds
        ]


TEN_EPISODES = "--set=schedule.evaluation_steps=EnvironmentEpisodes(10)"
NO_CONTACTS = {"include_cfrc_ext_in_observation": False}
SUITES = {
    "mujoco": Suite(
        levels=(
            Level("HalfCheetah-v5", "6156 ± 700"),
            Level("Hopper-v5", "1103 ± 368"),
            Level("Walker2d-v5", "690 ± 241"),
            Level("Ant-v5", "747 ± 501", label="Ant-v5 with contact forces"),
            Level("Ant-v5", "747 ± 501", NO_CONTACTS, "-no-contacts", "Ant-v5 without contact forces"),
            Level("Humanoid-v5", "632 ± 170"),
        ),
        groups=(
            Group(
                "mujoco_twin_sac",
                TWIN,
                "tfsac",
                (1, 2, 3, 4, 5),
                ("--preset=mujoco_twin_sac", "--set=schedule.improve_steps=90000", TEN_EPISODES),
            ),
            Group("sb3", SB3, "sb3", (1, 2, 3), ("--steps=100000",)),
            Group(
                "sb3_1e-3", f"{SB3}, learning rate 1e-3", "sb3", (1, 2, 3), ("--steps=100000", "--learning_rate=1e-3")
            ),
        ),
        published="SAC with a learning rate of 1e-3 on the v4 levels, 10 seeds, mean ± deviation. Observations and "
        "rewards of v5 differ; those of Ant v4 are without contact forces.",
    ),
}


# -- single tasks ------------------------------------------------------------------------------------------------------

LABELS = {
    "pendulum_sac": "tfsac, SAC with V",
    "mujoco_sac": "tfsac, SAC with V",
    "pendulum_twin_sac": "tfsac, twin-target SAC",
    "mujoco_twin_sac": TWIN,
    "mujoco_twin_sac_like_sb3": "tfsac, twin-target SAC, SB3's learning rate",
    "lunar_lander_continuous_twin_sac": "tfsac, twin-target SAC",
    "spinningup_sac": "tfsac, as Spinning Up",
    "di_engine_mujoco_sac": "tfsac, as DI-engine",
    "di_engine_pendulum_sac": "tfsac, as DI-engine, 10 environments",
    "di_engine_lunar_lander_continuous_sac": "tfsac, as DI-engine",
    "di_engine_bipedal_walker_sac": "tfsac, as DI-engine, 8 environments",
    "cart_pole_discrete_sac": "tfsac, discrete SAC",
    "lunar_lander_discrete_sac": "tfsac, discrete SAC",
    "cart_pole_sqil": "tfsac, SQIL, 10 demonstrations, no rewards",
    "pendulum_sqil": "tfsac, SQIL, 10 demonstrations, no rewards",
    "hopper_sqil": "tfsac, SQIL, 4 demonstrations, no rewards",
    "simple_spread_discrete_sac": "tfsac, discrete SAC, 3 agents",
    "simple_spread_twin_sac": "tfsac, twin-target SAC, 3 agents",
    "taac_simple_control": "tfsac, TAAC",
    "taac_simple_control_linear": "tfsac, TaacL",
    "taac_simple_control_quadratic": "tfsac, TaacQ",
    "taac_locomotion": "tfsac, TAAC",
    "acer_cartpole": "tfsac, ACER, 8 environments",
    "acer_lunar_lander": "tfsac, ACER, 8 environments",
    "acer_pendulum": "tfsac, ACER, 8 environments",
    "acer_mujoco": "tfsac, ACER, 8 environments",
    "acer_partially_observable": "tfsac, ACER with an LSTM, velocities hidden",
    "acer_partially_observable_feed_forward": "tfsac, ACER without an LSTM, velocities hidden",
    "sb3": SB3,
    "sb3_1e-3": f"{SB3}, learning rate 1e-3",
}


class Task(NamedTuple):
    """One level that one preset is trained on; `bar` is the mean of the last evaluations that is wanted after `steps`.

    `variant` distinguishes runs of a preset with other flags.
    """

    preset: str
    level: str
    steps: int
    bar: float | None = None
    flags: tuple[str, ...] = ()
    variant: str = ""

    @property
    def name(self) -> str:
        return self.preset + self.variant

    @property
    def place(self) -> str:
        """The level as part of a file's name."""
        return in_file_name(self.level)

    def run(self, seed: int) -> Run:
        flags = (f"--preset={self.preset}", f"--level={self.level}", f"--seed={seed}", *self.flags)
        return Run(f"{self.name}_{self.place}_seed{seed}", self.level, LABELS[self.name], seed, "tfsac", flags)


TO_100_000 = ("--set=schedule.improve_steps=90000",)
LIKE_SB3 = ("--set=agent.networks.*.learning_rate=3e-4", "--set=agent.algorithm.temperature.initial_alpha=1.0")
LINEAR, QUADRATIC = (("--set=agent.algorithm.trajectory=" + kind,) for kind in ("linear", "quadratic"))
# The published numbers belong to runs of 3 million steps; these are mujoco_twin_sac's random steps and learning rate.
SHORT_TAAC = (
    "--set=schedule.heatup_steps=10000",
    "--set=agent.networks.*.learning_rate=1e-3",
    "--set=agent.algorithm.alpha_learning_rate=1e-3",
)
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
FORGETFUL = ('--set=agent.networks.trunk.middleware_parameters={"scheme": [64, 64]}',)
OF_100 = ("--set=schedule.evaluation_steps=EnvironmentEpisodes(100)",)
TASKS = {
    "pendulum": Task("pendulum_sac", "Pendulum-v1", 10_000, -180.0),
    "inverted_pendulum": Task("mujoco_sac", "InvertedPendulum-v5", 30_000, 1000.0, ("--stop_at_threshold",)),
    "half_cheetah": Task("mujoco_sac", "HalfCheetah-v5", 100_000, flags=TO_100_000),
    "hopper": Task("mujoco_sac", "Hopper-v5", 100_000, flags=TO_100_000),
    "twin_pendulum": Task("pendulum_twin_sac", "Pendulum-v1", 10_000, -160.0),
    "twin_inverted_pendulum": Task("mujoco_twin_sac", "InvertedPendulum-v5", 30_000, 1000.0),
    "twin_inverted_double_pendulum": Task(
        "mujoco_twin_sac", "InvertedDoublePendulum-v5", 100_000, 8000.0, ("--stop_at_threshold",)
    ),
    "sb3_like_half_cheetah": Task(
        "mujoco_twin_sac", "HalfCheetah-v5", 100_000, None, (*TO_100_000, *LIKE_SB3), "_like_sb3"
    ),
    "spinningup_half_cheetah": Task(
        "spinningup_sac", "HalfCheetah-v5", 100_000, None, ("--set=schedule.improve_steps=99000",)
    ),
    "di_engine_hopper": Task("di_engine_mujoco_sac", "Hopper-v5", 100_000, flags=TO_100_000),
    "di_engine_pendulum": Task("di_engine_pendulum_sac", "Pendulum-v1", 100_000),
    "di_engine_bipedal_walker": Task("di_engine_bipedal_walker_sac", "BipedalWalker-v3", 5_000_000),
    "di_engine_lunar_lander": Task("di_engine_lunar_lander_continuous_sac", "LunarLanderContinuous-v3", 150_000),
    "cart_pole": Task("cart_pole_discrete_sac", "CartPole-v1", 30_000, 475.0),
    "lunar_lander": Task("lunar_lander_discrete_sac", "LunarLander-v3", 200_000, 150.0),
    "cart_pole_sqil": Task("cart_pole_sqil", "CartPole-v1", 20_000, 450.0),
    "pendulum_sqil": Task("pendulum_sqil", "Pendulum-v1", 20_000, None, OF_100),
    "hopper_sqil": Task("hopper_sqil", "Hopper-v5", 100_000),
    "simple_spread": Task("simple_spread_discrete_sac", SPREAD, 100_000),
    "twin_simple_spread": Task("simple_spread_twin_sac", SPREAD, 100_000),
    "taac_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0),
    "taac_linear_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0, LINEAR, "_linear"),
    "taac_quadratic_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0, QUADRATIC, "_quadratic"),
    "taac_mountain_car": Task("taac_simple_control", "MountainCarContinuous-v0", 100_000, 90.0),
    "twin_mountain_car": Task("mujoco_twin_sac", "MountainCarContinuous-v0", 100_000, flags=TO_100_000),
    "taac_inverted_double_pendulum": Task("taac_simple_control", "InvertedDoublePendulum-v5", 50_000, 8000.0),
    "taac_half_cheetah": Task("taac_locomotion", "HalfCheetah-v5", 100_000, flags=(*SHORT_TAAC, *TO_100_000)),
    "acer_cart_pole": Task("acer_cartpole", "CartPole-v1", 100_000, 475.0),
    "acer_lunar_lander": Task("acer_lunar_lander", "LunarLander-v3", 500_000, 150.0),
    "acer_pendulum": Task("acer_pendulum", "Pendulum-v1", 300_000, -600.0),
    "acer_half_cheetah": Task("acer_mujoco", "HalfCheetah-v5", 500_000, 1000.0),
    "acer_hopper": Task("acer_mujoco", "Hopper-v5", 500_000, 1000.0),
    "acer_walker2d": Task("acer_mujoco", "Walker2d-v5", 500_000, 500.0),
    "acer_inverted_pendulum": Task("acer_mujoco", "InvertedPendulum-v5", 200_000, 900.0),
    "acer_remembering": Task("acer_partially_observable", "CartPole-v1", 300_000, 400.0),
    "acer_forgetful": Task("acer_partially_observable", "CartPole-v1", 300_000, None, FORGETFUL, "_feed_forward"),
    "twin_lunar_lander": Task("lunar_lander_continuous_twin_sac", "LunarLanderContinuous-v3", 150_000, 200.0),
}
