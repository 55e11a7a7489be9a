"""Validated parameter objects in Coach's vocabulary, re-exported from the modules. Does not import TensorFlow."""

from tfsac.parameters.acer import *
from tfsac.parameters.base import *
from tfsac.parameters.base_agent import *
from tfsac.parameters.experiment import *
from tfsac.parameters.memories import *
from tfsac.parameters.networks import *
from tfsac.parameters.optimizers import *
from tfsac.parameters.overrides import *
from tfsac.parameters.recurrent_sac import *
from tfsac.parameters.run import *
from tfsac.parameters.soft_actor_critic import *
from tfsac.parameters.steps import *
from tfsac.parameters.taac import *
