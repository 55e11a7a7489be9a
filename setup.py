"""Packaging of tfsac."""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).parent
# Not imported: importing tfsac needs the packages that this file installs.
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "tfsac" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)[1]

EXTRAS = {
    "mujoco": ["gymnasium[mujoco]>=1.2", "imageio>=2.30"],
    "box2d": ["gymnasium[box2d]>=1.2"],
    "atari": ["ale-py>=0.10", "opencv-python-headless>=4.8"],
    # The Fetch tasks fail with newer versions of MuJoCo.
    "robotics": ["gymnasium-robotics>=1.4", "mujoco<3.4"],
    # Platform, for the preset hybrid_sac; it imports numba without declaring it.
    "platform": ["hybrid-platform>=0.1", "numba>=0.60"],
    "minatar": ["minatar>=1.0.15"],
    "multi-objective": ["mo-gymnasium>=1.3", "gymnasium[mujoco]>=1.2"],
    "multi-agent": ["pettingzoo>=1.25", "mpe2>=1.0"],
    # JAX with MuJoCo's XLA and Warp; 1.3 GB.
    "playground": ["playground>=0.2,<0.3", "jax>=0.5"],
    "minari": ["minari[hdf5]>=0.5,<0.6"],
    "video": ["imageio>=2.30", "imageio-ffmpeg>=0.5"],
    "ray": ["ray>=2.52,<3"],
    "litert": ["ai-edge-litert>=2.0,<3"],
    "wandb": ["wandb>=0.19"],
    # mlflow-skinny is MLflow's client; the other two let it write to SQLite.
    "mlflow": ["mlflow-skinny>=3.0", "sqlalchemy>=2.0", "alembic>=1.13"],
    "tune": ["optuna>=5.0,<6"],
    "notebooks": ["nbclient>=0.10", "nbformat>=5.9", "ipykernel>=6.29"],
    "docs": ["mkdocs-material>=9.7,<10", "mkdocstrings[python]>=1.0", "latex2mathml>=3.78"],
    # Stable-Baselines3 and PFRL need a separate virtual environment; see benchmarks/README.md.
    "bench": ["stable-baselines3>=2.7", "gymnasium[mujoco]>=1.2", "pfrl>=0.4", "packaging"],
}
TESTED = (
    "mujoco",
    "box2d",
    "atari",
    "multi-objective",
    "multi-agent",
    "minari",
    "video",
    "litert",
    "ray",
    "notebooks",
    "wandb",
    "mlflow",
    "docs",
    "tune",
)
EXTRAS["test"] = [
    "pytest>=8.0",
    "pytest-xdist>=3.6",
    "ruff>=0.17,<0.18",  # minor versions change the formatting
    "mypy>=2.4,<3",
    *(package for extra in TESTED for package in EXTRAS[extra]),
]

setup(
    name="tfsac",
    version=VERSION,
    description="The soft actor-critic family in TensorFlow 2 and Keras 3",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The tfsac maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["reinforcement learning", "soft actor-critic", "tensorflow", "keras", "gymnasium"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Intended Audience :: Developers",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    packages=[
        "tfsac",
        "tfsac.agents",
        "tfsac.cards",
        "tfsac.cli",
        "tfsac.distributed",
        "tfsac.environments",
        "tfsac.experiments",
        "tfsac.exporting",
        "tfsac.losses",
        "tfsac.memories",
        "tfsac.networks",
        "tfsac.parameters",
        "tfsac.policies",
        "tfsac.presets",
        "tfsac.spinning_up",
        "tfsac.training",
        "tfsac.training.checkpoints",
        "tfsac.training.loggers",
        "tfsac.utils",
    ],
    package_dir={"tfsac.presets": "presets"},
    package_data={"tfsac": ["py.typed"], "tfsac.presets": ["demonstrations/*.npz"]},
    # Upper bounds for packages whose next major version may change the API.
    install_requires=[
        "tensorflow>=2.21,<3",
        "tensorflow-probability[tf]>=0.25,<0.26",
        "keras>=3.12,<4",
        "gymnasium[classic-control]>=1.2,<2",
        "cloudpickle>=3.0",
        "numpy>=2.0,<3",
        "absl-py>=2.1",
        "filelock>=3.20",
        "pydantic>=2.10,<3",
        "tensorboard>=2.20",
        "rich>=13.8",
        "matplotlib>=3.9",
        "scipy>=1.15",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["tfsac = tfsac.cli:main"]},
)
