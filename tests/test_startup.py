"""Commands import only the packages that they need."""

import json

import pytest
from tiny import untrained_run

# Packages that are slow to import and not imported by TensorFlow.
HEAVY = {
    "IPython", "PIL", "ale_py", "cv2", "h5py", "imageio", "jax", "matplotlib", "minari", "mujoco", "pandas", "pettingzoo",
    "pygame", "ray", "rich", "scipy", "setuptools", "sklearn", "tensorboard", "tensorflow_probability", "tf_keras", "torch",
}  # fmt: skip
WITHOUT_TENSORFLOW = ("--help", "presets", "plot")
NEEDED = {
    "--help": set(),
    "presets": set(),
    "plot": {"matplotlib", "PIL"},  # writes the figure
    "evaluate": {"rich"},
    "export": {"rich"},
    "train": {"rich", "tensorboard"},  # progress bar and event file
}
# Exits at its first step.
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
# Prints the imported modules after each command, as JSON.
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
def imported_modules(run_python, tmp_path_factory):
    """The modules imported by each command; for training commands, without those of TensorFlow."""
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
    modules = {}
    for line in printed.splitlines():
        if line.startswith('{"'):
            modules |= {command: set(names) for command, names in json.loads(line).items()}
    before = modules.pop("tensorflow")
    return {name: names if name in WITHOUT_TENSORFLOW else names - before for name, names in modules.items()}


@pytest.mark.parametrize("command", NEEDED)
@pytest.mark.slow
def test_command_imports_only_needed_packages(imported_modules, command):
    roots = {name.partition(".")[0] for name in imported_modules[command]}
    assert roots & HEAVY <= NEEDED[command]
    if command in WITHOUT_TENSORFLOW:
        assert not roots & {"tensorflow", "keras", "gymnasium"}
    assert "numpy" not in roots or command != "--help"


def test_tracing_does_not_use_autograph(imported_modules):
    # AutoGraph creates a module for each function that it rewrites. TensorFlow itself uses it once to save a model.
    assert len({name for name in imported_modules["train"] if name.startswith("__autograph_generated")}) <= 1
