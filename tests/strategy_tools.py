"""Small agents of every algorithm, and the results of five updates on one device or several."""

import dataclasses
import json
import pathlib
import pickle
import socket
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import acer_tools
import numpy as np
import tensorflow as tf
from agent_tools import variables
from cli_tools import SUBPROCESS_ENV
from toys import discrete_spec, hybrid_spec, random_batches, random_segments, random_sequences, team_spec, vector_spec

from tfsac import parameters as p
from tfsac.agents import Agent
from tfsac.types import ArraySpec, DiscreteSpec, Spec, arrays_of

UPDATES, BATCH, STEPS = 5, 8, 4
SPEC, DISCRETE = vector_spec(3, 2), discrete_spec(3, 4, masked=True)
IMAGES = Spec({"observation": ArraySpec((8, 8, 2), "uint8")}, DiscreteSpec(4))
# A wrongly scaled gradient changes Adam's step because of the large epsilon, and changes the clipped gradient.
NETWORK_OPTIONS = {"learning_rate": 1e-2, "batch_size": BATCH, "optimizer_epsilon": 1e-3, "clip_gradients": 0.5}
TEAM = {"policy_input": "agent_state", "critic_input": "global_state"}
UNIFORM, PRIORITIZED = p.ExperienceReplayParameters(), p.PrioritizedExperienceReplayParameters()
SQIL = p.SQILExperienceReplayParameters(demonstrations="unused")
FIXED = p.FixedAlphaParameters(0.2)
LINEAR_DECAY = {"learning_rate_decay_type": "linear", "learning_rate_decay_steps": 2 * UPDATES}


def sac_with_v(memory=UNIFORM, delay=1, average=None, **trained):
    algorithm = p.SoftActorCriticAlgorithmParameters(
        num_steps_between_copying_online_weights_to_target=p.TrainingSteps(2),
        num_updates_between_policy_updates=delay,
        rate_for_averaging_policy=average,
    )
    networks = p.soft_actor_critic_networks((8, 8), **NETWORK_OPTIONS, **trained)
    return p.SoftActorCriticAgentParameters(algorithm=algorithm, memory=memory, networks=networks), SPEC


def twin(temperature, memory=UNIFORM, spec=SPEC, networks=None, **algorithm):
    parameters = p.TwinSoftActorCriticAgentParameters(
        algorithm=p.TwinSoftActorCriticAlgorithmParameters(temperature=temperature, **algorithm),
        memory=memory,
        networks=p.twin_soft_actor_critic_networks((8, 8), **NETWORK_OPTIONS, **networks or {}),
    )
    return parameters, spec


def hybrid(spec, critics=2, memory=UNIFORM, **algorithm):
    parameters = p.HybridSoftActorCriticAgentParameters(
        algorithm=p.HybridSoftActorCriticAlgorithmParameters(**algorithm),
        memory=memory,
        networks=p.hybrid_soft_actor_critic_networks((8, 8), critics, **NETWORK_OPTIONS),
    )
    return parameters, spec


def ensemble(body, policy=None, critics=2, distribution=None, memory=UNIFORM, networks=None, **algorithm):
    head = p.QHeadParameters(num_critics=critics, body_parameters=body, distribution=distribution)
    policy = policy or p.FCMiddlewareParameters((8,))
    parameters = p.TwinSoftActorCriticAgentParameters(
        algorithm=p.TwinSoftActorCriticAlgorithmParameters(temperature=p.AutoAlphaParameters(0.05, 0.03), **algorithm),
        memory=memory,
        networks=p.ensemble_soft_actor_critic_networks(head, policy, **NETWORK_OPTIONS, **networks or {}),
    )
    return parameters, SPEC


def discrete(memory=UNIFORM, spec=DISCRETE, networks=None, shared_encoder=False, **algorithm):
    parameters = p.DiscreteSoftActorCriticAgentParameters(
        algorithm=p.DiscreteSoftActorCriticAlgorithmParameters(**algorithm),
        memory=memory,
        networks=p.discrete_soft_actor_critic_networks((16,), **NETWORK_OPTIONS, **networks or {}),
        shared_encoder=shared_encoder,
    )
    return parameters, spec


def taac(spec=SPEC, **algorithm):
    parameters = p.TemporallyAbstractActorCriticAgentParameters(
        algorithm=p.TemporallyAbstractActorCriticAlgorithmParameters(alpha_learning_rate=1e-2, **algorithm),
        memory=p.SequenceReplayParameters(sequence_length=STEPS),
        networks=p.temporally_abstract_networks((8, 8), init_w=0.5, **NETWORK_OPTIONS),
    )
    return parameters, spec


def recurrent(spec, **algorithm):
    make, make_algorithm = p.RecurrentSoftActorCriticAgentParameters, p.RecurrentSoftActorCriticAlgorithmParameters
    if spec is DISCRETE:
        make = p.RecurrentDiscreteSoftActorCriticAgentParameters
        make_algorithm = p.RecurrentDiscreteSoftActorCriticAlgorithmParameters
    parameters = make(
        algorithm=make_algorithm(burn_in=1, **algorithm),
        memory=p.SequenceReplayParameters(sequence_length=STEPS),
        networks=p.recurrent_soft_actor_critic_networks((8,), 5, (8,), spec is DISCRETE, **NETWORK_OPTIONS),
    )
    return parameters, spec


def acer(kind, cells=None, shared=False):
    rmsprop = {"optimizer_type": "RMSProp", "learning_rate": 1e-3, "optimizer_epsilon": 1e-2, "clip_gradients": 0.5}
    return acer_tools.make_parameters(kind, cells, shared, STEPS, networks=rmsprop), acer_tools.SPECS[kind]


LAYER = p.NormalizationParameters("layer")
BATCH_BEFORE = p.NormalizationParameters("batch", "before", normalize_input=True)
RENORM_AFTER = p.NormalizationParameters("batch_renorm", "after", normalize_input=True)
ATOMS = p.CategoricalValueParameters(11, -3.0, 3.0)

# Parameters and spec by name. The first agent makes one update and then four in one call, the others five in one.
AGENTS = {
    "twin, automatic temperature": twin(p.AutoAlphaParameters(0.05, 0.03), PRIORITIZED),
    "twin, temperature outside log space, policy delay": twin(
        p.AutoAlphaParameters(0.05, 0.3, log_space=False, **LINEAR_DECAY),
        PRIORITIZED,
        networks=LINEAR_DECAY,
        num_updates_between_policy_updates=2,
    ),
    "twin, fixed temperature, simultaneous": twin(FIXED, update_order="simultaneous"),
    "twin, team": twin(p.AutoAlphaParameters(), PRIORITIZED, team_spec(3, discrete=False), TEAM),
    "twin, imitation": twin(FIXED, SQIL),
    "ensemble, subset": ensemble(
        p.FCMiddlewareParameters((8, 8)), critics=4, critic_subset=2, policy_reduction="mean", memory=PRIORITIZED
    ),
    "ensemble, dropout, policy delay": ensemble(
        p.FCMiddlewareParameters((8, 8), normalization=LAYER, dropout=0.3), num_updates_between_policy_updates=2
    ),
    "ensemble, quantiles": ensemble(
        p.FCMiddlewareParameters((8, 8)),
        critics=3,
        distribution=p.QuantileValueParameters(5, 1),
        target_reduction="pool",
    ),
    "ensemble, batch renormalisation, no target": ensemble(
        p.FCMiddlewareParameters((8, 8), normalization=RENORM_AFTER),
        p.FCMiddlewareParameters((8,), normalization=RENORM_AFTER),
        joint_critic_forward=True,
        networks={"target_network": False},
        num_updates_between_policy_updates=3,
        rate_for_averaging_policy=0.4,
    ),
    "ensemble, atoms, batch normalisation, unit kernels": ensemble(
        p.FCMiddlewareParameters((8, 8), normalization=BATCH_BEFORE),
        p.FCMiddlewareParameters((8,), normalization=BATCH_BEFORE),
        distribution=ATOMS,
        joint_critic_forward=True,
        target_reduction="index_min",
        networks={"unit_weights": "kernels"},
        memory=PRIORITIZED,
    ),
    "ensemble, atoms, flash, unit weights": ensemble(
        p.ResidualMiddlewareParameters("flash", 8),
        p.ResidualMiddlewareParameters("flash", 8),
        distribution=ATOMS,
        joint_critic_forward=True,
        joint_policy_forward=True,
        target_reduction="index_min",
        update_order="policy_first",
        networks={"unit_weights": "all"},
    ),
    "ensemble, simba": ensemble(
        p.ResidualMiddlewareParameters("simba", 8), p.ResidualMiddlewareParameters("simba", 8), target_reduction="own"
    ),
    "v": sac_with_v(average=0.4, l2_regularization=0.01),
    "v, prioritized, policy delay": sac_with_v(PRIORITIZED, delay=2),
    "v, imitation": sac_with_v(SQIL),
    "discrete": discrete(PRIORITIZED),
    "hybrid, masks": hybrid(hybrid_spec((3, 2), 2, masked=True), memory=PRIORITIZED),
    "hybrid, factors, subset": hybrid(hybrid_spec((3, 2, 2), 0), 3, critic_subset=2, policy_reduction="mean"),
    "discrete, shared encoder, policy delay": discrete(
        PRIORITIZED,
        IMAGES,
        {"embedder": (p.Conv2d(3, 4, 2), 8)},
        shared_encoder=True,
        num_updates_between_policy_updates=2,
        rate_for_averaging_policy=0.4,
    ),
    "discrete, team": discrete(PRIORITIZED, team_spec(3, masked=True), TEAM),
    "discrete, imitation": discrete(SQIL, temperature=FIXED),
    "taac": taac(num_updates_between_policy_updates=2, rate_for_averaging_policy=0.4),
    "taacl": taac(trajectory="linear", inverse_mode=False),
    "taacq, two rewards": taac(
        SPEC._replace(num_rewards=2), trajectory="quadratic", reward_weights=(1.0, -0.5), compare_through="unbiased"
    ),
    "recurrent": recurrent(SPEC, num_updates_between_policy_updates=2),
    "recurrent, discrete, stored": recurrent(DISCRETE, initial_state="stored"),
    "acer, discrete": acer("discrete"),
    "acer, discrete, lstm": acer("discrete", cells=3),
    "acer, gaussian": acer("gaussian"),
    "acer, gaussian, lstm, trunk": acer("gaussian", cells=3, shared=True),
}
# Agent class, parameters and spec by name.
CASES = {name: (p.class_of(parameters, Agent), parameters, spec) for name, (parameters, spec) in AGENTS.items()}


def make_agent(name, **more):
    """Returns the agent of a case with random weights."""
    agent_class, parameters, spec = CASES[name]
    agent, rng = agent_class(parameters, spec, **more), np.random.default_rng(1)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            variable.assign(0.5 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    return agent


def global_batches(agent):
    """Returns the global batches of five updates."""
    if hasattr(agent.policy, "trajectory") or hasattr(agent, "burn_in"):
        return random_sequences(agent.spec, UPDATES, STEPS, BATCH, state=agent.policy.recurrent_state)
    if hasattr(agent, "averages"):
        # The first batch has steps in one column only, so most replicas have none.
        stacked = random_segments(agent.spec, UPDATES, STEPS, agent.batch_size, state=agent.policy.recurrent_state)
        for x in tf.nest.flatten(stacked._replace(initial_state=())):
            x[0, :, 1:] = 0
        for x in stacked.initial_state.values():
            x[0, 1:] = 0
        return stacked
    stacked = random_batches(agent.spec._replace(extras={}), UPDATES, BATCH)
    if agent.prioritized:
        stacked = stacked._replace(weight=np.tile(np.linspace(0.1, 2.0, BATCH, dtype=np.float32), (UPDATES, 1)))
    if agent.imitates:
        stacked = stacked._replace(extras={"expert": np.tile(np.float32([0, 1]), (UPDATES, BATCH // 2))})
    return stacked


def worker_shard(agent, stacked, worker):
    """Returns a worker's share of the global batches."""
    rows = slice(worker * agent.local_batch_size, (worker + 1) * agent.local_batch_size)
    if not getattr(stacked, "initial_state", ()):
        return tf.nest.map_structure(lambda x: x[:, :, rows] if agent.batch_axis else x[:, rows], stacked)
    state = {field: x[:, rows] for field, x in stacked.initial_state.items()}
    return tf.nest.map_structure(lambda x: x[:, :, rows], stacked._replace(initial_state=()))._replace(
        initial_state=state
    )


def fix_noise(agent):
    """Makes an agent draw the same noise in every update, on any device."""

    def noise(name, shape, draw=tf.random.stateless_normal):
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        noise_values = rng.standard_normal(shape) if draw is tf.random.stateless_normal else rng.random(shape)
        return agent.replica_slice(tf.constant(noise_values, tf.float32), agent.replicas)

    agent.noise = noise
    if getattr(agent.algorithm, "critic_subset", None):
        agent.subset = lambda: tf.range(agent.algorithm.critic_subset)


def run_updates(name, worker=0, noise=True, **more):
    """Creates an agent, makes five updates, and returns the results.

    Args:
        name: name of the case.
        worker: index of the worker whose share of the batches is used.
        noise: False for the same noise in every update, on any device.
        **more: arguments of the agent.

    Returns:
        final variables, metrics, priorities, greedy actions, and properties of the agent.
    """
    agent = make_agent(name, **more)
    if not noise:
        fix_noise(agent)
    everything = global_batches(agent)
    stacked = worker_shard(agent, everything, worker)
    parts = (slice(1), slice(1, None)) if name == next(iter(CASES)) else (slice(None),)
    results = [agent.update(tf.nest.map_structure(lambda x, part=part: x[part], stacked)) for part in parts]
    observation = {key: x[0, 0] if agent.batch_axis else x[0] for key, x in everything.observation.items()}
    action = agent.policy.act(observation, mode="greedy").action
    return {
        "variables": variables(agent),
        "metrics": dict(zip(agent.metric_names, np.concatenate([result.metrics for result in results]).T, strict=True)),
        "priority": np.concatenate([result.priority for result in results]),
        "greedy": np.concatenate([x.reshape(len(x), -1) for x in arrays_of(action)], axis=-1),
        "traces": agent.compiled.traces,
        "replicas": agent.replicas,
        "local_batch_size": agent.local_batch_size,
    }


def write_results(strategy, path, names, worker=0):
    """Writes the results of `run_updates` under a strategy to a file."""
    results = {}
    for name in names:
        with strategy.scope():
            results[name] = run_updates(name, worker)
    pathlib.Path(path).write_bytes(pickle.dumps(results))


def read_results(path):
    """Reads a file of `write_results`: results by name of the case."""
    return pickle.loads(pathlib.Path(path).read_bytes())


def construction_errors(strategy):
    """Returns the errors of agents that two devices cannot run: an odd batch size, and XLA."""
    agent_class, parameters, spec = CASES["v"]
    networks = {name: dataclasses.replace(network, batch_size=7) for name, network in parameters.networks.items()}
    uneven, errors = dataclasses.replace(parameters, networks=networks), []
    for case, jit_compile in ((uneven, False), (parameters, True)):
        try:
            with strategy.scope():
                agent_class(case, spec, jit_compile=jit_compile)
        except ValueError as error:
            errors.append(str(error))
    return errors


def two_cpu_devices():
    """Splits the CPU into two logical devices, before TensorFlow is used, and returns a strategy for them."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def free_ports(count):
    """Returns free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def tf_config(ports, worker):
    """Returns the TF_CONFIG of a worker on this machine."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}})


def start_workers(commands):
    """Starts a Python process per worker; TF_CONFIG connects them."""
    ports, processes = free_ports(len(commands)), []
    for index, command in enumerate(commands):
        environment = {**SUBPROCESS_ENV, "TF_CONFIG": tf_config(ports, index)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, *command], env=environment, **pipes))
    return processes


def wait_for_workers(processes):
    """Waits for workers and returns their stdout and stderr."""
    try:
        with ThreadPoolExecutor(len(processes)) as pool:  # reading one after another could block on a full pipe
            return list(pool.map(lambda process: process.communicate(timeout=900), processes))
    finally:
        for process in processes:
            process.kill()
