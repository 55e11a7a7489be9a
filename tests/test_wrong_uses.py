"""A table of command lines that cannot be carried out: each ends with status 2 and one line with its reason, and
writes nothing.
"""

import json
import re
import shlex
import sys

import pytest

from tfsac import cli
from tfsac.catalog import load_preset
from tfsac.parameters import RunParameters, to_json

NEEDED, INTEGER, COUNT = "needs a value", "is a non-negative integer", "is a positive integer"
NO_RUN, NO_FLAG, WORD = "no run directory: it has no config.json", "has no flag", r"Flags are written --name=value\."
KIND, NUMBER, WHOLE, OBJECT = (
    "Input should be an object of kind",
    "a valid number",
    "a valid integer",
    "Input should be an object",
)
UNIT = r"expected EnvironmentSteps\(n\).* or a whole number of environment steps"
EXISTS, NO_FOLDER, OCCUPIED = (
    "exists already; choose another",
    "cannot be made, because .*file is no folder",
    "new or empty folder",
)
SET, DISCOUNT, SIZE = "train --set=", "agent.algorithm.discount", "agent.memory.max_size"
NETWORKS, POLICY = "agent.networks", "agent.networks.policy"
STEPS = "train --set=schedule.improve_steps"
GRID, SWEEP, TUNE = "sweep --run_dir=new --grid=", "sweep --run_dir=new", "tune --run_dir=new"
NO_TUNING = ("missing", "file", "empty", "run", "sweep")

# Command line, its reason (a regular expression). The working folder has the files and folders of the fixture `place`.
WRONG = [
    # the command
    ("trian", "Did you mean 'train'"),
    ("TRAIN", "Did you mean 'train'"),
    ("train,", "Did you mean 'train'"),
    ("trian --help", "Did you mean 'train'"),
    ("help trian", "Did you mean 'train'"),
    ("--seed=1 train", "no such command"),
    ("--version train", "no such command"),
    ("''", "no such command"),
    ("train --level=\udcff", "written in UTF-8"),
    ("\udcff", "written in UTF-8"),
    # how flags are written
    ("train --sed=1", "has no flag --sed. Did you mean '--seed'"),
    ("train --Seed=1", "Did you mean '--seed'"),
    ("train --num-envs=2", "Did you mean '--num_envs'"),
    ("train --no-resume", "Did you mean '--resume'"),
    ("train -x", "tfsac train --help lists its flags"),
    ("train --undefok=x --x=1", NO_FLAG),
    ("train --flagfile=file", NO_FLAG),
    ("train --grid=a.b=1", "has no flag --grid. It is a flag of tfsac sweep"),
    ("evaluate --run_dir=run --num_envs=2", "It is a flag of tfsac train, sweep"),
    ("train \u2013seed=1", "two plain hyphens.*another character"),
    ("train \u2014seed=1", "two plain hyphens.*another character"),
    ("train -\u2013seed=1", "two plain hyphens.*another character"),
    ("train \u2212\u2212seed=1", "two plain hyphens.*another character"),
    ("train seed=1", WORD + " Did you mean --seed=1"),
    ("train pendulum_sac", WORD + " Did you mean --preset=pendulum_sac"),
    ("train help me", WORD),
    ("evaluate run", WORD + " Did you mean --run_dir=run"),
    ("train --seed 1 2", WORD),
    ("train -- --seed=1", WORD),
    ("train -", WORD),
    ("train ''", WORD),
    ("presets mine", WORD),
    ("info mine", WORD),
    ("train --seed", NEEDED),
    ("train --seed=", NEEDED),
    ("train --seed --num_envs=1", NEEDED),
    ("train --set", NEEDED),
    ("train --set=", NEEDED),
    ("train --level=", NEEDED),
    ("train --preset=", NEEDED),
    ("train --run_dir=", NEEDED),
    ("train --experiment_name=", NEEDED),
    ("train --ray_address=", NEEDED),
    ("train --checkpoint_restore_dir=", NEEDED),
    ("train --evaluate", NEEDED),
    ("plot --run_dir=", NEEDED),
    ("compare run --title=", NEEDED),
    ("train --seed=1 --seed=2", "--seed is given once.* Received: '--seed=2' after 1"),
    ("train --seed=1 --seed=1", "--seed is given once"),
    ("train --resume --noresume", "--resume is given once"),
    ("train --preset=pendulum_sac --preset=mujoco_sac", "--preset is given once"),
    ("evaluate --run_dir=run --run_dir=run", "--run_dir is given once"),
    ("train --resume false --run_dir=run", "after an equals sign, as in --resume=false"),
    ("train --eager no", "after an equals sign"),
    ("train --noresume=true", "--noresume stands without a value"),
    ("train --resume=perhaps", "--resume is true or false"),
    ("evaluate --run_dir=run --render=human", "--render is true or false"),
    ("train --strategy=Mirrored", "--strategy is none or .* Did you mean 'mirrored'"),
    ("train --mixed_precision=float16", "Did you mean 'bfloat16'"),
    ("export --run_dir=run --out=new --format=onnx", "--format is saved_model or tflite"),
    # numbers of flags
    ("train --seed=-1", INTEGER),
    ("train --seed -1", INTEGER),
    ("train --seed=1.5", INTEGER),
    ("train --seed=1e3", INTEGER),
    ("train --seed=abc", INTEGER),
    ("train --seed=" + "9" * 5000, INTEGER),
    ("train --seed=1099511627776", "seed: .*less than 2147483648"),
    ("train --num_seeds=2 --seed=2147483647", "seed: .*less than 2147483648"),
    ("train --num_envs=0", COUNT),
    ("train --num_envs=-1", COUNT),
    ("train --num_envs=many", COUNT),
    ("train --num_envs=100000000", "hold a step of every environment"),
    ("train --num_seeds=0", COUNT),
    ("train --checkpoint_save_steps=0", COUNT),
    ("train --evaluate=0", COUNT),
    ("train --strategy=mirrored --num_devices=0", COUNT),
    ("evaluate --run_dir=run --episodes=0", COUNT),
    ("evaluate --run_dir=run --episodes=ten", COUNT),
    ("evaluate --run_dir=run --seed=-1", INTEGER),
    ("record --run_dir=run --out=new.npz --episodes=-1", COUNT),
    # flags that do not go together
    ("train --list --seed=1", "--list stands alone.* Received: --list with --seed"),
    ("train --run_dir=new --experiment_name=x", "--run_dir the whole folder; give one. Received: both"),
    ("train --num_seeds=2 --run_dir=new --experiment_name=x", "give one. Received: both"),
    ("sweep --run_dir=new --experiment_name=x", "give one. Received: both"),
    ("train --experiment_name=../x", "a folder under runs/"),
    ("sweep --experiment_name=/x", "a folder under runs/"),
    ("train --num_devices=2", "of the strategy 'mirrored'"),
    ("train --set=environment.kwargs.max_episode_steps=9", "is environment.max_episode_steps. Received: kwargs.max"),
    ("train --histograms --notensorboard", "histograms are written to TensorBoard"),
    ("train --jit_compile --eager", "not with eager"),
    ("train --num_actors=2", "give a ray_address"),
    ("train --actor_steps=2", "give a ray_address"),
    ("train --ray_address=local --asynchronous_collection", "neither several workers nor asynchronous_collection"),
    ("train --num_seeds=2 --ray_address=local", "--num_seeds with --ray_address"),
    ("train --num_seeds=2 --strategy=multi_worker", "a sweep trains on one"),
    ("train --strategy=multi_worker", "needs TF_CONFIG.* Received: no TF_CONFIG"),
    ("train --stop_at_threshold --level=MountainCarContinuous-v0", "needs validation.min_reward_threshold"),
    ("train --skip_damaged_rows", "--skip_damaged_rows without --resume"),
    ("train --skip_damaged_rows --num_seeds=2", "--skip_damaged_rows without --resume"),
    ("plot run --title=x", "--title with one run"),
    # presets
    ("train --preset=Pendulum_sac", "Did you mean 'pendulum_sac'"),
    ("train --preset=pendulum-sac", "Did you mean 'pendulum_sac'"),
    ("train --preset=empty", "a .py file, or a run's config.json"),
    ("train --preset=run", "Did you mean 'run/config.json'"),
    ("train --preset=file.png", "a .py file, or a run's config.json"),
    ("train --preset=.", "a .py file, or a run's config.json"),
    ("train --preset=nothing.py", "no preset file of this path"),
    ("train --preset=nothing.json", "no preset file of this path"),
    ("train --preset=folder.json", "no preset file of this path"),
    ("train --preset=bad/syntax.py", "SyntaxError: .*bad/syntax.py, line 2"),
    ("train --preset=bad/raises.py", r"Received: ValueError: no way .*bad/raises.py, line 2"),
    ("train --preset=bad/exits.py", r"Received: SystemExit: 0 .*bad/exits.py, line 2"),
    ("train --preset=bad/imports.py", r"No module named 'no_such_module' .*bad/imports.py, line 1"),
    ("train --preset=bad/recursion.py", "RecursionError.*bad/recursion.py, line 1"),
    ("train --preset=bad/binary.py", "SyntaxError.*bad/binary.py"),
    ("train --preset=bad/type.py", "bad/type.py: a preset file defines preset = Preset.* Received: 5"),
    ("train --preset=bad/without.py", "Did you mean 'presets'.* Received: bad/without.py"),
    ("train --preset=bad/empty.py", "a preset file defines|A preset file defines"),
    ("train --preset=bad/parameter.py", "bad/parameter.py, line 3: .* no parameter 'levl'. Did you mean 'level'"),
    (
        "train --preset=bad/subclass.py",
        r"subclass.py, line 5: .*write Preset\(\.\.\.\).* Received: the class Mine\(Preset\)",
    ),
    ("train --preset=bad/levels.py", r"levels\['x'\]: There is no parameter .*'. Did you mean 'discount'"),
    ("train --preset=bad/deep.json", "not the config of a run.*nested too deeply"),
    ("train --preset=bad/five.json", "five.json does not fit this version"),
    ("train --preset=bad/list.json", "not the config of a run"),
    ("train --preset=bad/binary.json", "not the config of a run"),
    ("train --preset=bad/empty.json", "not the config of a run.* Received: 0 bytes"),
    (
        "train --preset=bad/newer.json",
        "newer.json, which tfsac 9.9 wrote, does not fit .* no parameter 'discont'. Did you mean 'discount'",
    ),
    ("train --preset=bad/run.json", "run.json.* has no parameter 'sed'. Did you mean 'seed'"),
    ("show --preset=pendulum_sca", "Did you mean 'pendulum_sac'"),
    ("show --set=agent.algorithm.discont=1", "Did you mean 'discount'"),
    ("show --seed=1", "It is a flag of tfsac train"),
    # --set: paths
    (SET + "agent", "written path=value"),
    (SET + "=1", "written path=value"),
    (SET + "seed=1", "a flag and no parameter: --seed=1"),
    (SET + "run.seed=1", "no parameter 'run.seed'"),
    (SET + "preset.agent=1", "no parameter 'preset.agent'"),
    (SET + "agent..discount=1", "no parameter"),
    (SET + ".agent=1", "no parameter"),
    (SET + "agnt.algorithm.discount=1", "Did you mean 'agent'"),
    (SET + "agent.algorithm.discont=1", "Did you mean 'discount'"),
    (SET + f"{DISCOUNT}.x=1", "no parameter"),
    (SET + f"{NETWORKS}.pollicy.batch_size=1", "Did you mean 'policy'"),
    (SET + f"{NETWORKS}.*.nothing=1", "no parameter"),
    (SET + "environment.kwargs.g.x=5", "no parameter"),
    (SET + "*=1", KIND),
    (SET + f"{DISCOUNT}=0.9 --set={DISCOUNT}=0.8", "set once.* after 0.9"),
    ("train --num_envs=2 --set=environment.num_envs=3", "set once"),
    # --set: values
    (SET + "agent=", KIND),
    (SET + "agent=5", KIND),
    (SET + "agent=null", KIND),
    (SET + "agent=[]", KIND),
    (SET + """'agent={"kind":"nope"}'""", KIND),
    (SET + """'agent={"kind":["x"]}'""", KIND),
    (SET + """'agent.memory={"kind":"unifrom"}'""", "'uniform', 'prioritized', 'sqil' or 'prior_data'"),
    (SET + """'agent.memory={"kind":"uniform","max_sze":3}'""", "Did you mean 'max_size'"),
    (SET + "'agent.memory={kind:uniform}'", r"is no JSON, as \[64, 64\]"),
    (SET + """'agent.memory={"kind":"uniform"'""", "is no JSON"),
    (SET + "environment.kwargs.g=" + "[" * 3000, "no JSON|nested too deeply"),
    (SET + "environment.kwargs.g=" + "[" * 30000 + "]" * 30000, "nested too deeply"),
    (SET + "environment.kwargs.g=" + "[" * 500 + "]" * 500, "Invalid JSON: recursion limit"),
    *(
        (SET + f"{SIZE}={value}", WHOLE)
        for value in ("1e400", "inf", "NaN", "Infinity", "1.5", "true", "null", "[1]", "", "1e-6", "9" * 5000)
    ),
    (SET + f"{SIZE}=0", "greater than 0"),
    (SET + f"{SIZE}=-5", "greater than 0"),
    (SET + f"{SIZE}={10**32}", "less than"),
    *((SET + f"{DISCOUNT}={value}", "finite number") for value in ("1e400", "-1e400", "NaN")),
    *((SET + f"{DISCOUNT}={value}", NUMBER) for value in ("nan", "0,99", "True", "high", "", "{}")),
    (SET + f"{DISCOUNT}=1.5", "less than or equal to 1"),
    (SET + f"{DISCOUNT}=-0.1", "greater than or equal to 0"),
    (SET + "agent.algorithm.n_step=1000000000", "n_step must not be larger"),
    (SET + f"{NETWORKS}={{}}", "needs a network 'policy'"),
    (SET + f"""'{NETWORKS}={{"policy":{{}}}}'""", "needs the parameter 'head_parameters'"),
    (SET + f"{NETWORKS}.*=1", OBJECT),
    (SET + f"{POLICY}.head_parameters=null", OBJECT),
    (SET + f"{POLICY}.middleware_parameters.scheme=big", "'Empty', 'Shallow'"),
    (SET + f"{POLICY}.middleware_parameters.scheme=64", "'Empty', 'Shallow'"),
    (SET + f"{POLICY}.middleware_parameters.scheme=[64,-1]", "greater than 0"),
    (SET + f"{POLICY}.middleware_parameters.scheme=[64,0.5]", WHOLE),
    (SET + f"{POLICY}.learning_rate=-1", "greater than 0"),
    (SET + f"{POLICY}.learning_rate=fast", NUMBER),
    (SET + f"{NETWORKS}.*.batch_size=0", "greater than 0"),
    (SET + "environment=Pendulum-v1", OBJECT),
    (SET + "environment.level=5", "a valid string"),
    (SET + "environment.num_envs=1.5", WHOLE),
    (SET + "environment.vectorization=process", "'sync' or 'subprocess'"),
    (SET + "environment.kwargs=5", OBJECT),
    (SET + "environment.max_episode_steps=0", "greater than 0"),
    (SET + "environment.visible_entries=0", "a valid array"),
    (SET + "environment.visible_entries=[]", "one entry or more"),
    (SET + "environment.visible_entries=[-1]", "greater than or equal to 0"),
    (SET + "environment.filters.reward_clipping_range=[1]", "a list with more entries"),
    (SET + "environment.filters.reward_clipping_range=[1,2,3]", "at most 2 items"),
    (SET + "environment.filters.reward_clipping_range=[2,1]", r"is \(low, high\)"),
    (SET + "environment.filters.reward_rescale_factor=0", "greater than 0"),
    (SET + "environment.filters.return_scaling=5", OBJECT),
    (SET + """'environment.filters.return_scaling={"bound":0}'""", "greater than 0"),
    (SET + """'agent.memory={"kind":"prior_data"}'""", "needs the parameter 'demonstrations'"),
    (SET + """'agent.memory={"kind":"prior_data","demonstrations":"x.npz","share":1}'""", "less than 1"),
    (SET + "schedule.heatup_steps=TrainingSteps(5)", "counts environment steps or episodes"),
    (SET + "schedule.heatup_steps=10", "than what the warm-up collects"),
    (SET + "schedule.evaluation_steps=0", "at least 1"),
    (SET + "schedule.random_action_steps=-1", "greater than or equal to 0"),
    (SET + "schedule=5", OBJECT),
    (SET + "validation.min_reward_threshold=high", NUMBER),
    (SET + "levels=5", OBJECT),
    *(
        (f"{STEPS}={value}", UNIT)
        for value in (
            "EnvironmentSteps",
            "EnvironmentSteps()",
            "EnvironmentSteps(abc)",
            "EnvironmentSteps(-5)",
            "EnvironmentSteps(5.5)",
            "EnvironmentSteps(5",
            "environmentsteps(5)",
            "Minutes(5)",
            "1e-5",
            "5k",
            "true",
            "null",
        )
    ),
    (f"{STEPS}=0", "at least 1"),
    (f"{STEPS}={10**30}", "less than"),
    # levels
    ("train --level=Pendulm-v1", "Did you mean 'Pendulum-v1'"),
    ("train --level=pendulum-v1", "Did you mean 'Pendulum-v1'"),
    ("train --level='Pendulum v1'", "Did you mean 'Pendulum-v1'"),
    ("train --level=' Pendulum-v1'", "Did you mean 'Pendulum-v1'"),
    ("train --level=Pendulum-v0", "Did you mean 'Pendulum-v1'"),
    ("train --level=Pendulum", "named with its version.* Did you mean 'Pendulum-v1'"),
    ("train --set=environment.kwargs.render_mode=5", "render_mode is a text"),
    ("check --level=own_wrong:Kwargs", "named with its version.* Did you mean 'own_wrong:Kwargs-v0'"),
    (
        "train --set=environment.kwargs.render_mode=huma",
        "has the render modes 'human', 'rgb_array'. Did you mean 'human'",
    ),
    (
        "check --level=own_wrong:Kwargs-v0",
        r"'wrong' \(.*own_wrong.py, line 4\)\. gymnasium.register\(.* gives {'wrong': 2}\. Received: {'wrong': 2}",
    ),
    ("train --level=no_such_package:Pong-v5", "no_such_package"),
    ("train --level=pettingzoo:", "a module, such as"),
    ("train --level=FrozenLake-v1", "must be a Box or a Dict of boxes"),
    ("train --level=CartPole-v1", "as in the preset cart_pole_discrete_sac"),
    ("train --preset=cart_pole_discrete_sac --level=Pendulum-v1", "as in the preset pendulum_twin_sac"),
    ("train --preset=acer_cartpole --level=Pendulum-v1", "as in the preset acer_pendulum"),
    ("train --preset=acer_pendulum --level=CartPole-v1", "as in the preset acer_cartpole"),
    ("train --preset=atari_discrete_sac --level=CartPole-v1", "levels that begin with 'ALE/'"),
    ("train --num_seeds=2 --level=CartPole-v1 --run_dir=new", "as in the preset cart_pole_discrete_sac"),
    ("train --level=:", "the id of a registered environment"),
    ("train --level=a:b:c", "the id of a registered environment"),
    ("check", "--level, or --preset. Received: neither"),
    ("check Pendulum-v1", WORD),
    ("check --level=Pendulm-v1", "Did you mean 'Pendulum-v1'"),
    ("check --preset=pendulum_sca", "Did you mean 'pendulum_sac'"),
    ("check --level=Pendulum-v1 --num_steps=0", COUNT),
    ("check --level=Pendulum-v1 --set=agent.algorithm.discount=2", "less than or equal to 1"),
    ("check --level=Pendulum-v1 --set=seed=1", "a flag and no parameter: --seed=1"),
    ("check --level=Pendulum-v1 --set=environment.kwargs.g=1 --set=environment.kwargs.g=2", "set once"),
    # folders of runs
    ("train --run_dir=file", EXISTS),
    ("train --run_dir=full", EXISTS),
    ("train --run_dir=run", EXISTS),
    ("train --run_dir=sweep", EXISTS),
    ("train --run_dir=/dev/null", EXISTS),
    ("train --run_dir=file/x", NO_FOLDER),
    ("train --resume", "--resume needs --run_dir"),
    ("train --resume --run_dir=missing", NO_RUN),
    ("train --resume --run_dir=file", NO_RUN),
    ("train --resume --run_dir=empty", NO_RUN),
    ("train --resume --run_dir=sweep", "folder of a sweep; name one of the runs"),
    ("train --resume --run_dir=run", "no checkpoint to continue from"),
    ("train --resume --run_dir=run --preset=pendulum_sac", "keeps its preset.* Received: --preset"),
    ("train --resume --run_dir=run --level=Pendulum-v1", "keeps its preset.* Received: --level"),
    ("train --resume --run_dir=run --seed=1", "keeps its preset.* Received: --seed"),
    ("train --resume --run_dir=run --num_seeds=2", "--num_seeds with --resume"),
    ("train --resume --run_dir=run --experiment_name=x", "give one. Received: both"),
    ("train --checkpoint_restore_dir=missing", "This is no run directory: it has no config.json. Received: missing"),
    ("train --num_seeds=2 --checkpoint_restore_dir=missing", "This is no run directory"),
    ("train --num_seeds=2 --run_dir=full", OCCUPIED),
    # what a run left
    *(
        (f"{command} --run_dir=missing{more}", NO_RUN)
        for command, more in (("evaluate", ""), ("export", " --out=new"), ("record", " --out=n.npz"))
    ),
    *(
        (f"{command} --run_dir=sweep{more}", "of a sweep")
        for command, more in (("evaluate", ""), ("export", " --out=new"), ("record", " --out=n.npz"))
    ),
    *((command, "--run_dir is required") for command in ("evaluate", "export --out=new", "record --out=new.npz")),
    *((f"{command} --run_dir=run", "--out is required") for command in ("export", "record")),
    ("evaluate --run_dir=run/config.json", NO_RUN),
    ("evaluate --run_dir=young", "no saved weights yet"),
    ("evaluate --run_dir=run --dump_mp4=film", "ends in .mp4 or .gif"),
    ("evaluate --run_dir=run --dump_mp4=film.avi", "ends in .mp4 or .gif"),
    ("evaluate --run_dir=run --dump_mp4=file/film.mp4", NO_FOLDER),
    ("evaluate --run_dir=run --dump_mp4=file.mp4", "over an existing file"),
    ("evaluate --run_dir=run --plot_actions=file.png", "over an existing file"),
    ("evaluate --run_dir=run --plot_actions=a.jpg", "ends in .png"),
    ("export --run_dir=run --out=file", OCCUPIED),
    ("export --run_dir=run --out=full", OCCUPIED),
    ("export --run_dir=run --out=file/x", NO_FOLDER),
    ("record --run_dir=run --out=new", "ends in .npz"),
    ("record --run_dir=run --out=file.npz", "over an existing file"),
    ("record --run_dir=run --out=folder.npz", "there is a folder"),
    ("record --run_dir=run --out=file/x.npz", NO_FOLDER),
    ("plot", "Plotting needs a run"),
    ("plot ''", "or LABEL=RUN,RUN"),
    ("plot missing", "run directory with metrics.csv"),
    ("plot empty", "run directory with metrics.csv"),
    ("plot file", "no column of this name"),
    ("plot binary", "is no CSV file"),
    ("plot badsweep", "sweep.json is damaged"),
    ("plot run --out=file.png", "over an existing file"),
    ("plot run --out=new.jpg", "ends in .png"),
    ("plot run --out=file/x.png", NO_FOLDER),
    ("plot run run", "--out is required"),
    ("plot run run --out=new.png", "each run once"),
    ("plot run missing --out=new.png", NO_RUN),
    ("plot a= --out=new.png", "or LABEL=RUN,RUN"),
    ("plot a=run a=young --out=new.png", "label of its own.* Received: the label 'a' twice, for run and young"),
    ("compare a=run a=run", "label of its own.* Received: the label 'a' twice"),
    ("plot =run --out=new.png", "or LABEL=RUN,RUN"),
    ("plot a=run, --out=new.png", "or LABEL=RUN,RUN"),
    ("compare", "A comparison needs runs"),
    ("compare ''", "or LABEL=RUN,RUN"),
    ("compare =run", "or LABEL=RUN,RUN"),
    ("compare missing", NO_RUN),
    ("compare empty", NO_RUN),
    ("compare sweep", "No run of this sweep has finished"),
    ("compare badsweep", "sweep.json is damaged"),
    ("compare run run", "each run once"),
    ("compare young", "runs that have ended"),
    ("compare --run_dir=run", NO_FLAG),
    # the rest
    ("sweep --run_dir=file", OCCUPIED),
    ("sweep --run_dir=full", OCCUPIED),
    ("sweep --run_dir=badsweep", "sweep.json is damaged"),
    ("sweep --run_dir=file/x", "cannot be made"),
    ("sweep --resume", "has no flag --resume. It is a flag of tfsac train"),
    (f"{SWEEP} --jobs=0", COUNT),
    (f"{SWEEP} --jobs=1000", "at most the number of usable cores"),
    (f"{SWEEP} --cpus_per_run=2", "of runs on a Ray cluster"),
    (f"{SWEEP} --strategy=multi_worker", "a sweep trains on one"),
    (f"{SWEEP} --checkpoint_restore_dir=missing", "This is no run directory"),
    (f"{SWEEP} --stop_at_threshold --level=MountainCarContinuous-v0", "needs validation.min_reward_threshold"),
    *(
        (GRID + text, "A grid is written path=value")
        for text in ("a", "a.b", "=1", f"{DISCOUNT}", f"{DISCOUNT}=", f"{DISCOUNT}=0.9,")
    ),
    (GRID + f"{DISCOUNT}=0.9,0.9", "must differ"),
    (GRID + f"{DISCOUNT}=0.9,abc", NUMBER),
    (GRID + "discount=0.9", "by its whole path"),
    (GRID + "seed=1,2", "or a flag of preset"),
    (GRID + "num_envs=0,1", COUNT),
    (GRID + "level=Pendulum-v1,Pendulm-v1", "Did you mean 'Pendulum-v1'"),
    (GRID + "level=Pendulum-v1,CartPole-v1", "as in the preset cart_pole_discrete_sac"),
    (GRID + "preset=pendulum_sca", "Did you mean 'pendulum_sac'"),
    (GRID + "strategy=none,multi_worker", "a sweep trains on one"),
    (GRID + "level=Pendulum-v1,MountainCarContinuous-v0 --level=Pendulum-v1", "--level is given once"),
    (GRID + f"{DISCOUNT}=0.9,0.8 --set={DISCOUNT}=0.5", "set once"),
    (GRID + f"'{POLICY}.middleware_parameters.scheme=[64,[64,64]'", "opened and closed"),
    # model cards
    *((f"card --run_dir={name} --out=new", "has no config.json") for name in ("missing", "empty", "file")),
    ("card --out=new", "--run_dir is required"),
    ("card --run_dir=run --out=new --episodes=0", "positive integer"),
    ("card --run_dir=run --license=", "needs a value"),
    ("load", "--card is required"),
    ("load --card=run --episodes=0", "positive integer"),
    ("load --card=run --run_dir=run", "has no flag --run_dir"),
    # tunings
    ("tune --resume", "--resume needs --run_dir"),
    ("tune --report", "--report needs --run_dir"),
    ("tune --report --run_dir=empty --trials=3", "with --run_dir alone. Received: --report with --trials"),
    *(
        (f"tune {flag} --run_dir={name}", "has a tuning.json")
        for flag in ("--resume", "--report")
        for name in NO_TUNING
    ),
    ("tune --resume --run_dir=badtune", "tuning.json is damaged"),
    *((f"tune --run_dir={name}", EXISTS) for name in ("file", "full", "run", "sweep", "badtune")),
    ("tune --run_dir=file/x", NO_FOLDER),
    ("evaluate --run_dir=badtune", "folder of a tuning; name one of the runs"),
    (f"{TUNE} --pruner=medain", "Did you mean 'median'"),
    (f"{TUNE} --trials=0", COUNT),
    (f"{TUNE} --jobs=1000", "at most the number of usable cores"),
    (f"{TUNE} --strategy=multi_worker", "a sweep trains on one"),
    (f"{TUNE} --level=Pendulm-v1", "Did you mean 'Pendulum-v1'"),
    (f"{TUNE} --preset=pendulum_sca", "Did you mean 'pendulum_sac'"),
    (f"{TUNE} --space=discount=uniform(0,1)", "There is no parameter 'discount'"),
    (f"{TUNE} --space=seed=int(1,3)", "a flag and no parameter: --seed=1"),
    (f"{TUNE} --space={DISCOUNT}=0.9,0.99", "is written path=log"),
    (f"{TUNE} --space={DISCOUNT}=unifrom(0,1)", "Did you mean 'uniform'"),
    (f"{TUNE} --space={DISCOUNT}=uniform(1,0)", "lower bound is below"),
    (f"{TUNE} --space={DISCOUNT}=log(0,1)", "bounds above 0"),
    (f"{TUNE} --space={DISCOUNT}=uniform(0,2)", "refuses a value of .*less than or equal to 1"),
    (f"{TUNE} --space={DISCOUNT}=choice(0.9,0.9)", "which differ"),
    (f"{TUNE} --space={DISCOUNT}=choice(0.9,[1)", "opened and closed"),
    (f"{TUNE} --space=agent.networks.*.batch_size=log(16,512)", "valid integer"),
    (f"{TUNE} --space={DISCOUNT}=uniform(0.9,1) --set={DISCOUNT}=0.5", "set once"),
    ("spinup --gamma=2", "gamma"),
    ("spinup --gamma=abc", "--gamma is a non-negative number"),
    ("spinup --epochs=1.5", "--epochs is a positive integer"),
    ("spinup --hid=0", COUNT),
    ("spinup --env=HalfCheetah-v55", "Did you mean 'HalfCheetah-v5'"),
    ("spinup --run_dir=full", EXISTS),
    ("spinup --exp_name=../x", "a folder under runs/"),
    ("spinup --env=CartPole-v1", "2 discrete actions"),
    ("spinup --resume", "--resume needs --run_dir"),
    ("spinup --resume --run_dir=missing", NO_RUN),
]

# What only TensorFlow, or the memory that is made after it, can tell.
LATER = [
    ("train --set=agent.memory.max_size=1000000000000", "does not fit into RAM.* Received: agent.memory.max_size"),
    ("train --memory_on_disk --set=agent.memory.max_size=1000000000000", "bytes of the disk"),
    ("""train --set='agent.memory={"kind":"sqil","demonstrations":"none.npz"}'""", "no demonstration file"),
    ("""train --set='agent.memory={"kind":"sqil","demonstrations":"file.npz"}'""", "not a demonstration file"),
    ("train --checkpoint_restore_dir=run --run_dir=new", "best.npz is damaged"),
    ("evaluate --run_dir=run", "best.npz is damaged"),
    ("export --run_dir=run --out=new", "best.npz is damaged"),
    ("record --run_dir=run --out=new.npz", "best.npz is damaged"),
    ("evaluate --run_dir=run --plot_actions=new.png --dump_mp4=new.gif", "best.npz is damaged"),
]

FILES = {
    "file": b"mine",
    "file.png": b"mine",
    "file.npz": b"mine",
    "file.mp4": b"mine",
    "binary": b"\xff\xfe\x00",
    "full/x": b"mine",
    "badtune/tuning.json": b'{"format": 1}',
    "sweep/sweep.json": b'{"format": 1, "grid": [], "first": {}}',
    "badsweep/sweep.json": b"{",
    "bad/syntax.py": b"x = 1\npreset = (\n",
    "bad/raises.py": b'x = 1\nraise ValueError("no\\nway")\n',
    "bad/exits.py": b"import sys\nsys.exit(0)\n",
    "bad/imports.py": b"import no_such_module\n",
    "bad/recursion.py": b"def f(): return f()\nf()\n",
    "bad/binary.py": b"\xff\xfe",
    "bad/empty.py": b"",
    "bad/type.py": b"preset = 5\n",
    "bad/without.py": b"presets = 1\n",
    "bad/deep.json": b"[" * 100_000,
    "bad/five.json": b'{"preset": 5, "run": {}}',
    "bad/parameter.py": b'from tfsac.parameters import EnvironmentParameters, Preset\n\npreset = Preset(environment=EnvironmentParameters(levl="x"))\n',
    "bad/levels.py": b'from tfsac.parameters import Preset\n\npreset = Preset(levels={"x": {"agent.algorithm.discont": 1}})\n',
    "bad/subclass.py": b"from dataclasses import dataclass\nfrom tfsac.parameters import Preset\n\n@dataclass(frozen=True)\nclass Mine(Preset):\n    size: int = 3\n\npreset = Mine()\n",
    "own_wrong.py": b'import gymnasium as gym\n\nclass Kwargs(gym.Env):\n    def __init__(self, size=3):\n        pass\n\ngym.register("Kwargs-v0", Kwargs, kwargs={"wrong": 2})\n',
    "bad/list.json": b"[]",
    "bad/binary.json": b"\xff",
    "bad/empty.json": b"",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the table names."""
    folder = tmp_path_factory.mktemp("wrong")
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": to_json(RunParameters())}
    text, curve = json.dumps(config), b"env_steps,wall_seconds,evaluation/return_mean\n10,1,-5\n"
    files = {
        **FILES,
        "run/config.json": text.encode(),
        "run/best.npz": b"weights",
        "run/metrics.csv": curve,
        "young/config.json": text.encode(),
        "run/policy/saved_model.pb": b"model",
        "bad/newer.json": json.dumps({**config, "versions": {"tfsac": "9.9"}})
        .replace('"discount"', '"discont"')
        .encode(),
        "bad/run.json": json.dumps({**config, "run": {"sed": 1}}).encode(),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    for name in ("empty", "folder.json", "folder.npz"):
        (folder / name).mkdir()
    return folder


def tree(folder):
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_the_table_is_long_enough_and_names_every_command():
    lines = [line for line, _ in WRONG]
    assert len(set(lines)) == len(lines) > 300
    assert cli.COMMANDS.keys() <= {shlex.split(line)[0] for line in lines}


def refused(line, reason, place, capfd):
    before = tree(place)
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line))
    printed = capfd.readouterr().err
    assert ended.value.code == 2, printed
    assert printed.startswith("tfsac: ") and printed.count("\n") == 1
    assert printed.split("Received: ", 1)[1].strip() and re.search(reason, printed), printed
    assert tree(place) == before


@pytest.mark.parametrize(("line", "reason"), WRONG, ids=[ascii(line[:80]) for line, _ in WRONG])
def test_a_wrong_command_line_says_why_in_one_line_and_writes_nothing(line, reason, place, monkeypatch, capfd):
    monkeypatch.chdir(place)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # what is not refused ends at its import
    refused(line, reason, place, capfd)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "reason"), LATER, ids=[line[:80] for line, _ in LATER])
def test_what_is_noticed_after_tensorflow_has_loaded_writes_nothing_either(line, reason, place, monkeypatch, capfd):
    monkeypatch.chdir(place)
    refused(line, reason, place, capfd)


@pytest.mark.slow
def test_none_of_them_loads_tensorflow(place, run_python):
    program = """
import contextlib, io, json, os, shlex, sys
from tfsac import cli
os.chdir(sys.argv[1])
for line in json.loads(sys.stdin.read() if len(sys.argv) < 3 else open(sys.argv[2]).read()):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        cli.main(shlex.split(line))
    if "tensorflow" in sys.modules:
        print(line)
        break
"""
    listed = place.parent / "lines.json"
    listed.write_text(json.dumps([line for line, _ in WRONG]))
    assert run_python(program, str(place), str(listed)) == ""
