"""What the commands load before they begin: nothing that they do not need."""

import json

import pytest
from tiny import untrained_run

# Packages that take long to load, as far as TensorFlow has not loaded them itself.
HEAVY = {
    "IPython", "PIL", "ale_py", "cv2", "h5py", "imageio", "jax", "matplotlib", "minari", "mujoco", "pandas", "pettingzoo",
    "pygame", "ray", "rich", "scipy", "setuptools", "sklearn", "tensorboard", "tensorflow_probability", "tf_keras", "torch",
}  # fmt: skip
WITHOUT_TENSORFLOW = ("--help", "presets", "plot")
NEEDED = {
    "--help": set(),
    "presets": set(),
    "plot": {"matplotlib", "PIL"},  # which saves the picture
    "evaluate": {"rich"},
    "export": {"rich"},
    "train": {"rich", "tensorboard"},  # progress bar and event file
}
# Ends at its first step.
LEVEL = """
import json, os, sys
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class FirstStep(PendulumEnv):
    def step(self, action):
        print(json.dumps({"train": sorted(sys.modules)}), flush=True)
        os._exit(0)

gymnasium.register("FirstStep-v0", FirstStep)
"""
# Prints what was loaded after each command, as JSON.
PROGRAM = """
import json, os, sys
os.chdir(sys.argv[1])
if sys.argv[2] == "with":
    import tensorflow
    print(json.dumps({"tensorflow": sorted(sys.modules)}))
from tfsac import cli
for line in sys.argv[3:]:
    assert cli.run(line.split()) == 0
    print(json.dumps({line.split()[0]: sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def loaded(run_python, tmp_path_factory):
    """Names of the modules that are loaded after each command; of those that need TensorFlow, beyond what that loads."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "first_step.py").write_text(LEVEL)
    run = untrained_run(folder / "run", "Pendulum-v1")
    names = [f"evaluation/return_{name}" for name in ("mean", "min", "max")]
    (run / "metrics.csv").write_text(",".join(["env_steps", *names]) + "\n100,-8,-9,-7\n200,-7,-8,-6\n")
    without = ["--help", "presets", "plot --run_dir=run"]
    tensorflow = [
        "evaluate --run_dir=run --episodes=1",
        "export --run_dir=run --out=exported",
        "train --level=first_step:FirstStep-v0 --run_dir=new",
    ]
    printed = run_python(PROGRAM, str(folder), "without", *without)
    printed += run_python(PROGRAM, str(folder), "with", *tensorflow)
    found = {}
    for line in printed.splitlines():
        if line.startswith('{"'):
            found |= {command: set(names) for command, names in json.loads(line).items()}
    before = found.pop("tensorflow")
    return {name: names - before if name in ("evaluate", "export", "train") else names for name, names in found.items()}


@pytest.mark.parametrize("command", NEEDED)
@pytest.mark.slow
def test_a_command_loads_no_package_that_it_does_not_need(loaded, command):
    roots = {name.partition(".")[0] for name in loaded[command]}
    assert roots & HEAVY <= NEEDED[command]
    if command in WITHOUT_TENSORFLOW:
        assert not roots & {"tensorflow", "keras", "gymnasium"}
    assert "numpy" not in roots or command != "--help"


def test_graphs_are_traced_without_autograph(loaded):
    # Each function that AutoGraph rewrites becomes a module of its own, and takes longer than its trace. TensorFlow has
    # it rewrite one to save a model.
    assert len({name for name in loaded["train"] if name.startswith("__autograph_generated")}) <= 1
