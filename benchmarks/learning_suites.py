"""The suites of learning.py: levels with groups of runs that differ only in their seeds. Data only."""

import json
from typing import Any, NamedTuple

TWIN, SB3 = "tfsac, twin-target SAC", "Stable-Baselines3 SAC"


class Run(NamedTuple):
    """A training run.

    `flags` are those of `tfsac train`, or of learning_sb3.py if `package` is "sb3", without the folder.
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


class Group(NamedTuple):
    """One way to train on a level: the package, "tfsac" or "sb3", and its flags; `name` is part of the runs' names."""

    name: str
    label: str
    flags: tuple[str, ...] = ()
    package: str = "tfsac"
    seeds: tuple[int, ...] = (1, 2, 3)


class Level(NamedTuple):
    """A level of a suite; `variant` distinguishes runs with other `kwargs` of `gymnasium.make`, or other tasks."""

    id: str
    groups: tuple[Group, ...]
    published: str = ""
    kwargs: dict = {}
    variant: str = ""
    label: str = ""

    @property
    def title(self) -> str:
        return self.label or self.id

    @property
    def place(self) -> str:
        """The level as part of a file name."""
        return self.id.replace("/", "-").replace(":", "-") + self.variant

    def run(self, group: Group, seed: int) -> Run:
        flags = [*group.flags, f"--level={self.id}", f"--seed={seed}"]
        if self.kwargs:
            flag = "--set=environment.kwargs=" if group.package == "tfsac" else "--env_kwargs="
            flags.append(flag + json.dumps(self.kwargs))
        name = f"{group.name}_{self.place}_seed{seed}"
        return Run(name, self.title, group.label, seed, group.package, tuple(flags))


class Suite(NamedTuple):
    """Levels with groups of runs; a run's score is the mean of its last evaluations.

    `published` describes the levels' published numbers.
    """

    levels: tuple[Level, ...]
    published: str = ""
    last_evaluations: int = 5

    def runs(self) -> list[Run]:
        """The runs in order: the first seed of every group, then the second."""
        groups = [(level, group) for level in self.levels for group in level.groups]
        seeds = sorted({seed for _, group in groups for seed in group.seeds})
        return [level.run(group, seed) for seed in seeds for level, group in groups if seed in group.seeds]


def preset(name: str, label: str, *flags: str, variant: str = "", seeds: tuple[int, ...] = (1, 2, 3)) -> Group:
    """Returns a group of runs of a preset with more flags; `variant` distinguishes it from groups with other flags."""
    return Group(name + variant, label, (f"--preset={name}", *flags), seeds=seeds)


def improve(steps: int) -> str:
    return f"--set=schedule.improve_steps={steps}"


def episodes(number: int) -> str:
    return f"--set=schedule.evaluation_steps=EnvironmentEpisodes({number})"


MUJOCO = (
    preset("mujoco_twin_sac", TWIN, improve(90_000), episodes(10), seeds=(1, 2, 3, 4, 5)),
    Group("sb3", SB3, ("--steps=100000",), "sb3"),
    Group("sb3_1e-3", f"{SB3}, learning rate 1e-3", ("--steps=100000", "--learning_rate=1e-3"), "sb3"),
)
# The recommended preset, with its averaged and with its newest policy.
NEWEST = "--set=agent.algorithm.rate_for_averaging_policy=null"
FIVE_LEVELS = (
    *MUJOCO,
    preset("continuous", "tfsac, continuous, not averaged", improve(95_000), NEWEST, seeds=(1, 2, 3, 4, 5)),
    preset("continuous", "tfsac, continuous", improve(95_000), variant="_averaged", seeds=(1, 2, 3, 4, 5)),
)
NO_CONTACTS = {"include_cfrc_ext_in_observation": False}
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
# The published numbers belong to runs of 3 million steps; these are mujoco_twin_sac's random steps and learning rate.
SHORT_TAAC = (
    "--set=schedule.heatup_steps=10000",
    "--set=agent.networks.*.learning_rate=1e-3",
    "--set=agent.algorithm.alpha_learning_rate=1e-3",
)

# For two cores: alpha falls with the number of updates, regardless of the batch size.
SMALL_BATCHES = (
    "--set=agent.networks.*.batch_size=256",
    "--set=agent.algorithm.num_consecutive_playing_steps=EnvironmentSteps(32)",
    "--set=agent.algorithm.num_consecutive_training_steps=2",
)
BIPEDAL_WALKER = preset(
    "taac_bipedal_walker",
    "tfsac, TAAC, batches of 256",
    *SMALL_BATCHES,
    improve(480_000),
    episodes(10),
    "--set=schedule.steps_between_evaluation_periods=20000",
    variant="_256",
)


def one_changed(
    name: str,
    flags: tuple[str, ...],
    changes: dict[str, tuple[str, ...]],
    unchanged: str = "as it is",
    seeds: dict[str, tuple[int, ...]] | None = None,
) -> tuple[Group, ...]:
    """Returns groups of a preset with flags, and with one additional change each, by variant: label and flags.

    A change replaces the flag that sets the same parameter; `unchanged` is the label of the group without a change.
    `seeds` by variant default to 11 to 13, which no other suite uses: settings chosen with them are judged by others.
    """
    groups = []
    for variant, (label, *more) in {"": (unchanged,), **changes}.items():
        changed = {parameter(flag) for flag in more}
        kept = [flag for flag in flags if parameter(flag) not in changed]
        of_variant = (seeds or {}).get(variant, (11, 12, 13))
        groups.append(preset(name, label, *kept, *more, variant=variant, seeds=of_variant))
    return tuple(groups)


def parameter(flag: str) -> str:
    """Returns the parameter that a flag sets: `--set=PATH`, or its name."""
    return flag.rpartition("=")[0]


NARROW = "--mixed_precision=bfloat16"
MUJOCO_CHANGES: dict[str, tuple[str, ...]] = {
    "_rate_3e-4": ("learning rate 3e-4", "--set=agent.networks.*.learning_rate=3e-4"),
    "_alpha_rate_1e-3": ("alpha's learning rate 1e-3", "--set=agent.algorithm.temperature.learning_rate=1e-3"),
    "_alpha_1": ("first alpha 1", "--set=agent.algorithm.temperature.initial_alpha=1.0"),
    "_alpha_fixed": ("alpha fixed at 0.2", '--set=agent.algorithm.temperature={"kind": "fixed", "alpha": 0.2}'),
    "_random_1000": ("1000 random steps", "--set=schedule.heatup_steps=1000", improve(99_000)),
    "_simultaneous": ("simultaneous steps", "--set=agent.algorithm.update_order=simultaneous"),
    "_reward_5": ("rewards times 5", "--set=environment.filters.reward_rescale_factor=5.0"),
    "_normalised": ("observations normalised", "--set=environment.filters.observation_normalization=true"),
    "_orthogonal": ("orthogonal first weights", "--set=agent.networks.*.initializer=orthogonal"),
}
SHORT_MUJOCO = (improve(90_000), episodes(10), NARROW)
MUJOCO_CHOICES = one_changed("mujoco_twin_sac", SHORT_MUJOCO, MUJOCO_CHANGES)
SIX = tuple(range(11, 17))
WALKER2D_CHOICES = one_changed(
    "mujoco_twin_sac", SHORT_MUJOCO, MUJOCO_CHANGES, seeds={"": SIX, "_alpha_rate_1e-3": SIX}
)
HALF_CHEETAH_CHOICES = tuple(group for group in MUJOCO_CHOICES if group.name.endswith(("sac", "_alpha_rate_1e-3")))
ANT_CHOICES = tuple(
    group
    for group in MUJOCO_CHOICES
    if group.name.endswith(("sac", "_twin_sac_rate_3e-4", "_alpha_rate_1e-3", "_alpha_1", "_fixed"))
)
ANT_CONTACT_CHOICES = one_changed(
    "mujoco_twin_sac",
    (improve(90_000), episodes(10)),
    {
        "_alpha_like_sb3": (
            "alpha's learning rate 1e-3, first alpha 1",
            *MUJOCO_CHANGES["_alpha_rate_1e-3"][1:],
            *MUJOCO_CHANGES["_alpha_1"][1:],
        )
    },
)
CERTAIN, UNCLIPPED = "--set=agent.algorithm.min_prob=[0.01, 0.184]", "--set=agent.algorithm.b1_advantage_clipping=null"
# The preset now has batches of 256.
PENDULUM_CHOICES = one_changed(
    "pendulum_twin_sac",
    ("--set=agent.networks.*.batch_size=128",),
    {
        "_rate_3e-4": ("learning rate 3e-4", "--set=agent.networks.*.learning_rate=3e-4"),
        "_target_0.005": ("slower target", "--set=agent.algorithm.rate_for_copying_weights_to_target=0.005"),
        "_batch_256": ("batches of 256", "--set=agent.networks.*.batch_size=256"),
        "_alpha_rate_3e-4": ("alpha's learning rate 3e-4", "--set=agent.algorithm.temperature.learning_rate=3e-4"),
        "_alpha_1": ("first alpha 1", "--set=agent.algorithm.temperature.initial_alpha=1.0"),
    },
    unchanged="batches of 128",
)
TAAC_CHOICES = one_changed(
    "taac_locomotion",
    (*SHORT_TAAC, improve(90_000), episodes(10), NARROW),
    {
        "_unclipped": ("advantage not clipped", UNCLIPPED),
        "_certain": ("switch's min_prob 0.01", CERTAIN),
        "_certain_unclipped": ("switch's min_prob 0.01, advantage not clipped", CERTAIN, UNCLIPPED),
        "_short": ("sequences of 2 steps", "--set=agent.memory.sequence_length=2"),
    },
)
N_STEP, RATIO = "--set=agent.algorithm.n_step=", "--set=agent.algorithm.temperature.target_entropy_ratio="
# The preset now has returns of 3 steps and half of the maximum entropy.
LUNAR_LANDER_CHOICES = one_changed(
    "lunar_lander_discrete_sac",
    (f"{N_STEP}1", f"{RATIO}0.2"),
    {
        "_3_steps": ("returns of 3 steps", f"{N_STEP}3"),
        "_entropy_0.5": ("half of the largest entropy", f"{RATIO}0.5"),
        "_3_steps_entropy_0.5": ("both", f"{N_STEP}3", f"{RATIO}0.5"),
    },
    unchanged="returns of 1 step, a fifth of the largest entropy",
    seeds={"": (11,), "_3_steps": (11,), "_entropy_0.5": (11, 12), "_3_steps_entropy_0.5": (11, 12)},
)

TARGET_ENTROPY = "--set=agent.algorithm.temperature.target_entropy="
# The preset now has a target entropy of -1.
CONTINUOUS_LANDER_CHOICES = one_changed(
    "lunar_lander_continuous_twin_sac",
    (improve(50_000), f"{TARGET_ENTROPY}-2.0"),
    {
        "_3_steps": ("returns of 3 steps", f"{N_STEP}3"),
        "_entropy_-1": ("target entropy -1", f"{TARGET_ENTROPY}-1.0"),
        "_repetition": (
            "target entropy -1, noise kept for 8 steps",
            f"{TARGET_ENTROPY}-1.0",
            '--set=agent.exploration={"kind": "noise_repetition", "every": 8}',
        ),
        "_entropy_0": ("target entropy 0", f"{TARGET_ENTROPY}0.0"),
        "_random_1000": (
            "target entropy -1, 1000 random steps",
            f"{TARGET_ENTROPY}-1.0",
            "--set=schedule.heatup_steps=1000",
            improve(59_000),
        ),
        "_std": (
            "target entropy -1, log standard deviation of at least -1",
            f"{TARGET_ENTROPY}-1.0",
            "--set=agent.networks.policy.head_parameters.log_std_bounds=[-1.0,2.0]",
        ),
    },
    unchanged="target entropy -2",
    seeds={
        "_3_steps": (11,),
        "_entropy_-1": (11, 12, 13, 14, 15, 16),  # one seed in several hovers
        "_entropy_0": (11, 12, 13, 14, 15, 16),
        "_random_1000": (12, 13),
        "_std": (13,),
    },
)


LONG = ("--set=schedule.steps_between_evaluation_periods=10000", episodes(20), NARROW)
LONG_CONTINUOUS = (
    preset(
        "continuous", "tfsac, continuous, not averaged", improve(995_000), *LONG, NEWEST, variant="_long", seeds=(1,)
    ),
    preset("continuous", "tfsac, continuous", improve(995_000), *LONG, variant="_long_averaged"),
)


def long_twin_sac(*flags: str, seeds: tuple[int, ...]) -> Group:
    return preset("mujoco_twin_sac", TWIN, *LONG, *flags, variant="_long", seeds=seeds)


def sqil(name: str, *demonstrations: int) -> tuple[Group, ...]:
    return tuple(
        preset(
            name,
            f"tfsac, SQIL, {number} demonstration{'s' * (number > 1)}",
            f"--set=agent.memory.num_episodes={number}",
            variant=f"_{number}",
        )
        for number in demonstrations
    )


def trajectories(*kinds: str) -> tuple[Group, ...]:
    labels = {"constant": "TAAC", "linear": "TaacL", "quadratic": "TaacQ"}
    return tuple(
        preset(
            "taac_simple_control",
            f"tfsac, {labels[kind]}",
            f"--set=agent.algorithm.trajectory={kind}",
            variant=f"_{kind}",
        )
        for kind in kinds
    )


def crossq(units: int, label: str, *flags: str, variant: str = "", seeds: tuple[int, ...] = (1, 2)) -> Group:
    scheme = f"--set=agent.networks.q.head_parameters.network_layers_sizes=[{units}, {units}]"
    return preset("crossq_mujoco", label, scheme, *flags, variant=f"_{units}{variant}", seeds=seeds)


NARROW_CROSSQ = crossq(512, "tfsac, CrossQ, 512 units", improve(95_000))
# Two critics and one update per step, a twentieth of RLPD's arithmetic; the policy also has layer normalisation.
WITH_PRIOR_DATA = (
    "--set=agent.networks.q.head_parameters.num_critics=2",
    "--set=agent.networks.q.head_parameters.loss_weight=0.5",
    '--set=agent.networks.policy.middleware_parameters.normalization={"kind": "layer"}',
    "--set=agent.algorithm.critic_subset=null",
    "--set=agent.algorithm.num_consecutive_training_steps=1",
    "--set=agent.algorithm.num_updates_between_policy_updates=1",
    improve(95_000),
)
SMALL_CROSSQ = crossq(256, "tfsac, CrossQ, 256 units", improve(95_000))
# 10 000 steps with updates: four times the arithmetic of 100 000 steps of SAC.
FEW_STEPS = (improve(10_000), "--set=schedule.steps_between_evaluation_periods=2500", NARROW)
WIDE_CROSSQ = crossq(2048, "tfsac, CrossQ, 2048 units, bfloat16", *FEW_STEPS, seeds=(1,))
REDQ = preset("redq_mujoco", "tfsac, REDQ, bfloat16", *FEW_STEPS, seeds=(1,))
FLASH_SAC = preset("flash_sac_mujoco", "tfsac, FlashSAC, bfloat16", *FEW_STEPS, seeds=(1,))

# The candidates for `continuous`, with one update per step. The two best have more seeds.
LAYER_NORM, ATOMS = {"normalization": {"kind": "layer"}}, {"distribution": {"kind": "categorical", "num_atoms": 101}}
SCALED_RETURNS = (
    '--set=environment.filters.return_scaling={"bound": null}',
    "--set=agent.algorithm.target_reduction=index_min",
)
EVERY_UPDATE = "--set=agent.algorithm.num_updates_between_policy_updates=1"
EVERY_THIRD_UPDATE = "--set=agent.algorithm.num_updates_between_policy_updates=3"


def critics(body: dict[str, Any], **head: Any) -> tuple[str, ...]:
    """Returns the flags for two critics of 256 units with other options of their body and head."""
    parameters = {"kind": "q", "network_layers_sizes": [256, 256], **body, **head}
    middleware = '--set=agent.networks.q.middleware_parameters={"scheme": "Empty"}'
    return f"--set=agent.networks.q.head_parameters={json.dumps(parameters)}", middleware


CROSSQ_ATOMS = (
    f"--set=agent.networks.q.head_parameters.distribution={json.dumps(ATOMS['distribution'])}",
    *SCALED_RETURNS,
)
DEFAULT_CANDIDATES = (
    preset("continuous", "CrossQ, no policy delay", improve(95_000), NEWEST, seeds=(11, 12, 13)),
    crossq(256, "CrossQ", improve(95_000), seeds=(11,)),
    crossq(256, "CrossQ, 101 atoms", improve(95_000), *CROSSQ_ATOMS, variant="_atoms", seeds=(11,)),
    crossq(
        256,
        "CrossQ, 101 atoms, no policy delay",
        improve(95_000),
        EVERY_UPDATE,
        *CROSSQ_ATOMS,
        variant="_every_update_atoms",
        seeds=(11,),
    ),
    crossq(
        256,
        "CrossQ, 101 atoms, no policy delay, first alpha 0.01",
        improve(95_000),
        EVERY_UPDATE,
        *CROSSQ_ATOMS,
        "--set=agent.algorithm.temperature.initial_alpha=0.01",
        variant="_every_update_atoms_alpha_0.01",
        seeds=(11,),
    ),
    *one_changed(
        "mujoco_twin_sac",
        (improve(90_000), episodes(10)),
        {
            "_layer_norm": ("twin SAC, layer norm", *critics(LAYER_NORM)),
            "_layer_norm_delay": ("twin SAC, layer norm, policy delay 3", *critics(LAYER_NORM), EVERY_THIRD_UPDATE),
            "_atoms": ("twin SAC, 101 atoms", *critics({}, **ATOMS), *SCALED_RETURNS),
            "_layer_norm_atoms": ("twin SAC, layer norm, 101 atoms", *critics(LAYER_NORM, **ATOMS), *SCALED_RETURNS),
        },
        seeds=dict.fromkeys(("_layer_norm", "_layer_norm_delay", "_atoms", "_layer_norm_atoms"), (11,)),
    )[1:],  # the unchanged preset belongs to the suite `choices`
)

SUITES = {
    "mujoco": Suite(
        (
            Level("HalfCheetah-v5", FIVE_LEVELS, "6156 ± 700"),
            Level("Hopper-v5", FIVE_LEVELS, "1103 ± 368"),
            Level("Walker2d-v5", FIVE_LEVELS, "690 ± 241"),
            Level("Ant-v5", MUJOCO, "747 ± 501", label="Ant-v5 with contact forces"),
            Level("Ant-v5", FIVE_LEVELS, "747 ± 501", NO_CONTACTS, "-no-contacts", "Ant-v5 without contact forces"),
            Level("Humanoid-v5", FIVE_LEVELS, "632 ± 170"),
        ),
        "SAC with a learning rate of 1e-3 on the v4 levels, 10 seeds, mean ± deviation. Observations and rewards of v5 "
        "differ; those of Ant v4 are without contact forces.",
    ),
    "choices": Suite(
        (
            Level("Hopper-v5", MUJOCO_CHOICES),
            Level("Walker2d-v5", WALKER2D_CHOICES),
            Level("HalfCheetah-v5", TAAC_CHOICES),
            Level(
                "HalfCheetah-v5",
                HALF_CHEETAH_CHOICES,
                variant="-twin-targets",
                label="HalfCheetah-v5, twin-target SAC",
            ),
            Level("LunarLander-v3", LUNAR_LANDER_CHOICES),
            Level("LunarLanderContinuous-v3", CONTINUOUS_LANDER_CHOICES),
            Level("Pendulum-v1", PENDULUM_CHOICES),
            Level("Ant-v5", ANT_CONTACT_CHOICES, label="Ant-v5 with contact forces"),
            Level(
                "Ant-v5",
                ANT_CHOICES,
                kwargs=NO_CONTACTS,
                variant="-no-contacts",
                label="Ant-v5 without contact forces",
            ),
        )
    ),
    "default": Suite(
        (
            Level("Hopper-v5", DEFAULT_CANDIDATES),
            Level("Walker2d-v5", DEFAULT_CANDIDATES),
            Level("HalfCheetah-v5", DEFAULT_CANDIDATES),
        )
    ),
    "long": Suite(
        (
            Level(
                "HalfCheetah-v5", (*LONG_CONTINUOUS, long_twin_sac(seeds=(1, 2, 3))), "11 321 ± 1051; 12 139; 12 893"
            ),
            Level("Hopper-v5", (*LONG_CONTINUOUS, long_twin_sac(seeds=(1,))), "2787 ± 823; 3542; 2467"),
            Level("Walker2d-v5", (*LONG_CONTINUOUS, long_twin_sac(seeds=(1,))), "4536 ± 469; 5007; 6257"),
            Level(
                "Ant-v5",
                (LONG_CONTINUOUS[1], long_twin_sac(improve(490_000), seeds=(1,))),
                kwargs=NO_CONTACTS,
                variant="-no-contacts",
                label="Ant-v5 without contact forces",
            ),
            Level("Humanoid-v5", (LONG_CONTINUOUS[1]._replace(seeds=(1, 2)),), "4826; none; 10 480"),
        ),
        "after 1 million steps SAC on the v4 levels, 10 seeds, mean ± deviation; Tianshou's best on v3; CrossQ.",
    ),
    "sac": Suite(
        (
            Level("Pendulum-v1", (preset("pendulum_sac", "tfsac, SAC with V"),)),
            Level("InvertedPendulum-v5", (preset("mujoco_sac", "tfsac, SAC with V"),)),
            Level("HalfCheetah-v5", (preset("mujoco_sac", "tfsac, SAC with V", improve(90_000)),)),
            Level("Hopper-v5", (preset("mujoco_sac", "tfsac, SAC with V", improve(90_000)),)),
        )
    ),
    "twin_sac": Suite(
        (
            Level(
                "Pendulum-v1",
                (
                    preset("pendulum_twin_sac", TWIN),
                    Group("sb3", SB3, ("--steps=10000", "--learning_starts=1000", "--evaluate_every=1000"), "sb3"),
                ),
            ),
            Level("InvertedPendulum-v5", (preset("mujoco_twin_sac", TWIN),)),
            Level("InvertedDoublePendulum-v5", (preset("mujoco_twin_sac", TWIN),)),
            Level("LunarLanderContinuous-v3", (preset("lunar_lander_continuous_twin_sac", TWIN),)),
            Level(
                "HalfCheetah-v5",
                (
                    preset("spinningup_sac", "tfsac, as Spinning Up", improve(99_000)),
                    preset(
                        "mujoco_twin_sac",
                        "tfsac, learning rate and first alpha of Stable-Baselines3",
                        improve(90_000),
                        "--set=agent.networks.*.learning_rate=3e-4",
                        "--set=agent.algorithm.temperature.initial_alpha=1.0",
                        variant="_like_sb3",
                    ),
                ),
            ),
        )
    ),
    "di_engine": Suite(
        (
            Level("Pendulum-v1", (preset("di_engine_pendulum_sac", "tfsac, as DI-engine"),)),
            Level(
                "LunarLanderContinuous-v3", (preset("di_engine_lunar_lander_continuous_sac", "tfsac, as DI-engine"),)
            ),
            Level("Hopper-v5", (preset("di_engine_mujoco_sac", "tfsac, as DI-engine", improve(90_000)),)),
            Level("BipedalWalker-v3", (preset("di_engine_bipedal_walker_sac", "tfsac, as DI-engine"),)),
        )
    ),
    "discrete_sac": Suite(
        (
            Level(
                "CartPole-v1",
                (
                    preset("cart_pole_discrete_sac", "tfsac, discrete SAC"),
                    preset("discrete", "tfsac, discrete SAC, the preset to start with"),
                ),
            ),
            Level("LunarLander-v3", (preset("lunar_lander_discrete_sac", "tfsac, discrete SAC"),)),
            Level("tfsac.environments.minatar:Breakout-v0", (preset("images", "tfsac, discrete SAC"),)),
        )
    ),
    "images": Suite(  # with PYTHONPATH=examples
        (
            Level(
                "image_reacher:ImageReacher-v0",
                (
                    preset(
                        "pendulum_twin_sac",
                        TWIN,
                        improve(4_000),
                        "--set=agent.networks.*.batch_size=64",
                        "--set=agent.algorithm.discount=0.9",
                    ),
                ),
            ),
        ),
        last_evaluations=2,
    ),
    "several_agents": Suite(
        (
            Level(
                SPREAD,
                (
                    preset("simple_spread_discrete_sac", "tfsac, discrete SAC, 3 agents"),
                    preset("simple_spread_twin_sac", "tfsac, twin-target SAC, 3 agents"),
                ),
            ),
        )
    ),
    "sqil": Suite(
        (
            Level("Pendulum-v1", sqil("pendulum_sqil", 1, 4, 10)),
            Level("CartPole-v1", sqil("cart_pole_sqil", 1, 4, 10)),
            Level("Hopper-v5", sqil("hopper_sqil", 1, 4)),
            Level("HalfCheetah-v5", sqil("half_cheetah_sqil", 1, 4)),
        )
    ),
    "taac": Suite(
        (
            Level("Pendulum-v1", trajectories("constant", "linear", "quadratic")),
            Level(
                "MountainCarContinuous-v0",
                (*trajectories("constant"), preset("mujoco_twin_sac", TWIN, improve(90_000))),
            ),
            Level("InvertedDoublePendulum-v5", trajectories("constant")),
            Level("HalfCheetah-v5", (preset("taac_locomotion", "tfsac, TAAC", *SHORT_TAAC, improve(90_000)),)),
            Level("BipedalWalker-v3", (BIPEDAL_WALKER,)),
        )
    ),
    "acer": Suite(
        (
            Level("CartPole-v1", (preset("acer_cartpole", "tfsac, ACER"),)),
            Level(
                "CartPole-v1",
                (
                    preset("acer_partially_observable", "tfsac, ACER with an LSTM"),
                    preset(
                        "acer_partially_observable",
                        "tfsac, ACER without an LSTM",
                        '--set=agent.networks.trunk.middleware_parameters={"scheme": [64, 64]}',
                        variant="_feed_forward",
                    ),
                ),
                variant="-without-velocities",
                label="CartPole-v1 without velocities",
            ),
            Level("LunarLander-v3", (preset("acer_lunar_lander", "tfsac, ACER"),)),
            Level("Pendulum-v1", (preset("acer_pendulum", "tfsac, ACER"),)),
            Level("InvertedPendulum-v5", (preset("acer_mujoco", "tfsac, ACER"),)),
            Level("HalfCheetah-v5", (preset("acer_mujoco", "tfsac, ACER"),)),
            Level("Hopper-v5", (preset("acer_mujoco", "tfsac, ACER"),)),
            Level("Walker2d-v5", (preset("acer_mujoco", "tfsac, ACER"),)),
        )
    ),
    "recurrent": Suite(
        (
            *(
                Level(
                    level,
                    (
                        preset("recurrent_sac_mujoco", "tfsac, recurrent SAC", improve(90_000)),
                        preset(
                            "mujoco_twin_sac",
                            f"{TWIN}, without a memory",
                            f"--set=environment.visible_entries={[*range(positions)]}",
                            improve(90_000),
                            variant="_hidden",
                        ),
                    ),
                    variant="-without-velocities",
                    label=f"{level} without velocities",
                )
                for level, positions in (("Hopper-v5", 5), ("HalfCheetah-v5", 8))
            ),
            Level(
                "CartPole-v1",
                (
                    preset(
                        "recurrent_discrete_sac",
                        "tfsac, recurrent SAC",
                        "--set=environment.visible_entries=[0,2]",
                    ),
                    preset(
                        "cart_pole_discrete_sac",
                        "tfsac, discrete SAC, without a memory",
                        "--set=environment.visible_entries=[0,2]",
                        variant="_hidden",
                    ),
                ),
                variant="-without-velocities",
                label="CartPole-v1 without velocities",
            ),
            Level(
                "t_maze:TMaze-v0",
                (
                    preset("recurrent_discrete_sac", "tfsac, recurrent SAC", improve(19_000)),
                    preset(
                        "cart_pole_discrete_sac",
                        "tfsac, discrete SAC, without a memory",
                        improve(19_000),
                        # As high as the other's, whose rewards are divided by 20. With 0.2, entropy outweighs rewards.
                        "--set=agent.algorithm.temperature.alpha=0.05",
                    ),
                ),
            ),
        )
    ),
    "ensembles": Suite(
        (
            Level(
                "Hopper-v5",
                (
                    SMALL_CROSSQ,
                    NARROW_CROSSQ,
                    preset("droq_mujoco", "tfsac, DroQ"),
                    preset(
                        "droq_mujoco",
                        "tfsac, DroQ, dropout 0.01",
                        "--set=agent.networks.q.head_parameters.dropout=0.01",
                        variant="_dropout_0.01",
                        seeds=(1,),
                    ),
                    preset("rlpd", "tfsac, RLPD, 4 episodes", improve(28_000)),
                    preset("rlpd", "tfsac, SAC with prior data, 4 episodes", *WITH_PRIOR_DATA, variant="_sac"),
                    preset("xqc_mujoco", "tfsac, XQC, bfloat16", *FEW_STEPS, seeds=(1,)),
                    WIDE_CROSSQ,
                    REDQ,
                    FLASH_SAC,
                ),
                "SAC 1103; CrossQ 2764; DroQ 1813; REDQ 2750; XQC 2828; FlashSAC 2121",
            ),
            Level(
                "HalfCheetah-v5",
                (
                    SMALL_CROSSQ,
                    crossq(512, "tfsac, CrossQ, 512 units, bfloat16", improve(45_000), NARROW, seeds=(1,)),
                    preset("droq_mujoco", "tfsac, DroQ, bfloat16", *FEW_STEPS, seeds=(1,)),
                    preset("tqc_mujoco", "tfsac, TQC, bfloat16", improve(95_000), NARROW, seeds=(1,)),
                    preset(
                        "tqc_mujoco",
                        "tfsac, TQC, learning rate 1e-3, bfloat16",
                        improve(95_000),
                        NARROW,
                        "--set=agent.networks.*.learning_rate=1e-3",
                        variant="_rate_1e-3",
                    ),
                    preset("xqc_mujoco", "tfsac, XQC, bfloat16", improve(45_000), NARROW),
                    WIDE_CROSSQ,
                    REDQ,
                    FLASH_SAC,
                ),
                "SAC 6156; CrossQ 8112; DroQ 7744; REDQ 7823; XQC 8597; FlashSAC 9815",
            ),
        ),
        "after 100 000 steps of the v4 levels; CrossQ's with 2048 units.",
    ),
    "atari": Suite((Level("ALE/Pong-v5", (preset("acer_atari", "tfsac, ACER", improve(1_000_000), seeds=(1,)),)),)),
    "hybrid": Suite(
        (
            Level(
                "tfsac.environments.platform:HybridPlatform-v0",
                (preset("hybrid_sac", "tfsac, hybrid SAC", improve(19_000)),),
            ),
        )
    ),
    "hindsight": Suite(
        (
            Level(
                "gymnasium_robotics:FetchReach-v4",
                (
                    preset("fetch_hindsight", "tfsac, SAC with hindsight replay", improve(4_000)),
                    preset(
                        "fetch_hindsight", "tfsac, SAC", '--set=agent.memory={"kind": "uniform"}', variant="_uniform"
                    ),
                ),
            ),
            Level(
                "gymnasium_robotics:FetchPush-v4",
                (
                    preset("fetch_hindsight", "tfsac, SAC with hindsight replay", improve(99_000), seeds=(1,)),
                    preset(
                        "fetch_hindsight",
                        "tfsac, SAC",
                        '--set=agent.memory={"kind": "uniform"}',
                        improve(99_000),
                        variant="_uniform",
                        seeds=(1,),
                    ),
                ),
            ),
        ),
        last_evaluations=2,
    ),
    "robotics": Suite((Level("gymnasium_robotics:FetchReach-v4", (preset("taac_manipulation", "tfsac, TAAC"),)),)),
}
