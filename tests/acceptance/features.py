"""Trains, resumes, evaluates and exports every agent with every feature.

Each combination works or is rejected before anything is written.

    python tests/acceptance/features.py                                              # all cells, about an hour
    python tests/acceptance/features.py --agents=twin_sac,taac --features=n_step     # only these cells

Each agent and each of two workers runs in its own process.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


SECONDS = 900  # limit for two workers
STOP_AT = 50  # environment steps, after which the run is stopped and resumed
TINY = {
    "schedule.improve_steps": "EnvironmentSteps(100)",
    "schedule.steps_between_evaluation_periods": "EnvironmentSteps(40)",
    "environment.max_episode_steps": 12,
}
HEATUP = {"schedule.heatup_steps": "EnvironmentSteps(30)"}
TWO_ENVS = {"environment.num_envs": 2}
FEATURES = {
    "plain": ("one environment, nothing else", {}, {}),
    "several": ("several environments (`--num_envs`)", TWO_ENVS, {}),
    "subprocess": ("environments in processes (`vectorization=subprocess`)", {**TWO_ENVS, "environment.vectorization": "subprocess"}, {}),
    "same_step": ("vector environment of `env_fn`, `AutoresetMode.SAME_STEP`", {"environment.max_episode_steps": None}, {}),
    "next_step": ("vector environment of `env_fn`, `AutoresetMode.NEXT_STEP`", {"environment.max_episode_steps": None}, {}),
    "asynchronous": ("`--asynchronous_collection`", {}, {"asynchronous_collection": True}),
    "ray": ("actors on Ray (`--ray_address`)", TWO_ENVS, {"ray_address": "local", "num_actors": 2, "actor_steps": 4}),
    "workers": ("two workers (`--strategy=multi_worker`)", TWO_ENVS, {"strategy": "multi_worker"}),
    "mirrored": ("two devices (`--strategy=mirrored`)", {}, {"strategy": "mirrored", "num_devices": 2}),
    "one_device": ("`--strategy=one_device`", {}, {"strategy": "one_device"}),
    "prioritized": ("prioritised replay (`agent.memory`)", {"agent.memory": {"kind": "prioritized", "max_size": 1000}}, {}),
    "hindsight": ("hindsight replay (`agent.memory`)", {}, {}),  # see `run_cell`
    "privileged": ("privileged critics (`agent.networks.*.observation_keys`)", {}, {}),
    "prior_data": ("prior data (`agent.memory`)", {}, {}),  # see `run_cell`
    "repetition": ("noise repetition (`agent.exploration`)", {"agent.exploration": {"kind": "noise_repetition", "every": 7}}, {}),
    "resets": ("resets (`agent.algorithm.reset_steps`)", {"agent.algorithm.reset_steps": [40, 80]}, {}),
    "averaging": ("averaged policy (`agent.algorithm.rate_for_averaging_policy`)", {"agent.algorithm.rate_for_averaging_policy": 0.05}, {}),
    "n_step": ("n-step targets (`agent.algorithm.n_step=3`)", {"agent.algorithm.n_step": 3}, {}),
    "observations": ("observation normalisation", {"environment.filters.observation_normalization": True}, {}),
    "rewards": ("reward normalisation", {"environment.filters.reward_normalization": True}, {}),
    "returns": ("return scaling", {"environment.filters.return_scaling": {"bound": 5.0}}, {}),
    "on_disk": ("`--memory_on_disk`", {}, {"memory_on_disk": True}),
    "jit_compile": ("XLA (`--jit_compile`)", {}, {"jit_compile": True}),
    "bfloat16": ("`--mixed_precision=bfloat16`", {}, {"mixed_precision": "bfloat16"}),
    "eager": ("`--eager`", {}, {"eager": True}),
    "stochastic": ("`--stochastic_evaluation`", {}, {"stochastic_evaluation": True}),
    "shared": ("`environment.evaluation=shared`", {"environment.evaluation": "shared"}, {}),
    "none": ("`environment.evaluation=none`", {"environment.evaluation": "none"}, {}),
    "level": ("your own environment as a level (`module:Id`)", {}, {}),
    "env_fn": ("your own environment as a function (`env_fn`)", {}, {}),
    "models": ("custom Keras models (`models`)", {}, {}),
    "deterministic": ("`--deterministic`", {}, {"deterministic": True}),  # last, as a process cannot undo it
}  # fmt: skip
AGENTS = {
    "sac_v": "SAC with V",
    "twin_sac": "twin SAC",
    "renormalized_critics": "ensemble with batch renormalisation, no target network",
    "quantile_critics": "ensemble with quantiles, layer normalisation and dropout",
    "discrete_sac": "discrete SAC",
    "hybrid_sac": "hybrid SAC",
    "twin_team": "several agents, twin SAC",
    "discrete_team": "several agents, discrete SAC",
    "twin_sqil": "SQIL, twin SAC",
    "discrete_sqil": "SQIL, discrete SAC",
    "taac": "TAAC",
    "discrete_acer": "ACER, discrete",
    "gaussian_acer": "ACER, Gaussian",
    "lstm_acer": "ACER with an LSTM",
    "recurrent_sac": "recurrent SAC",
    "recurrent_discrete": "recurrent SAC, discrete",
}
DISCRETE = ("discrete_sac", "discrete_team", "discrete_sqil", "discrete_acer", "lstm_acer", "recurrent_discrete")
TEAMS = ("twin_team", "discrete_team")
HYBRID = "hybrid_sac"
ENSEMBLES = ("renormalized_critics", "quantile_critics")


def level_of(agent, own=False):
    """Returns the level of an agent's runs and its arguments."""
    if agent in TEAMS:
        return "toys:TeamIdentity-v0", {"discrete": agent in DISCRETE}
    if agent == HYBRID:
        return "toys:HybridIdentity-v0", {"mask": "nested"}
    if own:
        return f"toys:{'DiscreteIdentity' if agent in DISCRETE else 'Identity'}-v0", {}
    return "CartPole-v1" if agent in DISCRETE else "Pendulum-v1", {}


def environment(agent):
    """Returns an environment, as a user's `env_fn` does."""
    import gymnasium as gym

    level, arguments = level_of(agent)
    return gym.make(level, **arguments)


def vector_environment(agent, mode, num_envs=2):
    """Returns a vector environment with the time limit of `TINY`."""
    import gymnasium as gym

    def limited():
        return gym.wrappers.TimeLimit(environment(agent), TINY["environment.max_episode_steps"])

    return gym.vector.SyncVectorEnv([limited] * num_envs, autoreset_mode=gym.vector.AutoresetMode[mode.upper()])


def preset_of(agent, changes, folder):
    """Returns a tiny preset of an agent."""
    import tiny
    from toys import tiny_preset

    from tfsac import parameters as p

    level, arguments = level_of(agent)
    if agent.endswith("acer"):
        preset = tiny.acer(level, lstm=agent == "lstm_acer")
        common = {"agent.memory.replay_start_size": 20}
    elif agent == "taac":
        preset, common = tiny.taac(level), HEATUP
    elif agent.startswith("recurrent"):
        stored = {"agent.algorithm.initial_state": "stored"} if agent in DISCRETE else {}
        preset, common = tiny.recurrent(level, agent in DISCRETE), {**HEATUP, **stored}
    else:
        trained = {"learning_rate": 1e-3, "batch_size": 8}
        reads = {"policy_input": "agent_state", "critic_input": "global_state"} if agent in TEAMS else {}
        if agent == "sac_v":
            agent_parameters = p.SoftActorCriticAgentParameters(networks=p.soft_actor_critic_networks((8,), **trained))
        elif agent in DISCRETE:
            networks = p.discrete_soft_actor_critic_networks((8,), **reads, **trained)
            agent_parameters = p.DiscreteSoftActorCriticAgentParameters(networks=networks)
        elif agent == HYBRID:
            agent_parameters = p.HybridSoftActorCriticAgentParameters(
                networks=p.hybrid_soft_actor_critic_networks((8,), **trained)
            )
        elif agent in ENSEMBLES:
            agent_parameters = ensemble(agent, **trained)
        else:
            networks = p.twin_soft_actor_critic_networks((8,), **reads, **trained)
            agent_parameters = p.TwinSoftActorCriticAgentParameters(networks=networks)
        memory = p.ExperienceReplayParameters(max_size=1000)
        if agent.endswith("sqil"):
            memory = p.SQILExperienceReplayParameters(demonstrations=str(demonstrations(agent, folder)), max_size=1000)
        base = tiny_preset("Pendulum-v1")
        settings = dataclasses.replace(base.environment, level=level, kwargs=arguments)
        preset, common = (
            dataclasses.replace(base, agent=dataclasses.replace(agent_parameters, memory=memory), environment=settings),
            HEATUP,
        )
    return p.override(preset, {**TINY, **common, **changes})


def ensemble(agent, **trained):
    """Returns parameters of an ensemble of critics."""
    from tfsac import parameters as p

    if has_target := agent == "quantile_critics":
        normal, distribution = p.NormalizationParameters("layer"), p.QuantileValueParameters(5, 1)
        head = p.QHeadParameters((8,), num_critics=3, normalization=normal, dropout=0.1, distribution=distribution)
        options = {"critic_subset": 2, "target_reduction": "pool", "policy_reduction": "mean"}
    else:
        normal = p.NormalizationParameters("batch_renorm", "after")
        head, options = p.QHeadParameters((8,), normalization=normal), {"joint_critic_forward": True}
    body = p.FCMiddlewareParameters((8,), normalization=normal)
    return p.TwinSoftActorCriticAgentParameters(
        algorithm=p.TwinSoftActorCriticAlgorithmParameters(**options),
        networks=p.ensemble_soft_actor_critic_networks(head, body, target_network=has_target, **trained),
    )


def with_hindsight(preset, agent):
    """Returns a preset with hindsight replay in a goal environment; teams keep theirs, which has no goals."""
    from tfsac import parameters as p

    changes = {"agent.memory": {"kind": "hindsight", "max_size": 1000}}
    if agent not in TEAMS:
        level = "BitFlipping-v0" if agent in DISCRETE else "Reach-v0"
        kwargs = {"hybrid": True} if agent == HYBRID else {}
        changes |= {"environment.level": f"goal_tools:{level}", "environment.kwargs": kwargs}
    return p.override(preset, changes)


def privileged(env):
    """Adds the key "state" to the observation, for the critics."""
    import gymnasium as gym

    def by_key(parts):
        parts = dict(parts) if isinstance(parts, dict | gym.spaces.Dict) else {"observation": parts}
        return {**parts, "state": parts["observation"]}

    space = gym.spaces.Dict(by_key(env.observation_space))
    return gym.wrappers.TransformObservation(env, by_key, space)


def with_privileged_critics(preset, agent, run_dir):
    """Returns a preset whose critics read one more key than the policy; demonstrations have it too."""
    from tfsac import parameters as p

    policy, state = ("agent_state", "global_state") if agent in TEAMS else ("observation", "state")
    names = [name for name in preset.agent.networks if name != "policy"]
    changes = {f"agent.networks.{name}.observation_keys": [policy, state] for name in names}
    changes |= {
        f"agent.networks.{name}.input_embedders_parameters": {policy: {"scheme": []}} for name in preset.agent.networks
    }
    if agent.endswith("sqil"):
        path = demonstrations(agent, run_dir.parent, lambda: privileged(environment(agent)))
        changes["agent.memory.demonstrations"] = str(path)
    return p.override(preset, {**changes, "agent.networks.policy.observation_keys": [policy]})


def demonstrations(agent, folder, make=None):
    """Returns the file of demonstrations for an agent's level; writes it if it does not exist."""
    import tfsac

    path = folder / f"{agent}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        env = make() if make else environment(agent)
        env.action_space.seed(0)
        tfsac.save_demonstrations(path, tfsac.demonstrate(lambda observation: sample(env, observation), env, 2))
    return path


def sample(env, observation):
    """Returns a random action that the action mask allows."""
    mask = observation.get("action_mask") if isinstance(observation, dict) else None
    if mask is None:
        return env.action_space.sample()
    from tfsac.environments.actions import action_spec, nested_mask

    return env.action_space.sample(mask=nested_mask(mask, action_spec(env.action_space)))


def cloned_models(preset, run):
    """Returns a `models` function with the shapes of the agent's default networks."""
    import keras

    from tfsac.environments import maker, spec_of
    from tfsac.training.build import build_agent

    env = maker(preset.environment)()
    template = build_agent(preset, run, spec_of(env))
    env.close()
    return lambda: {name: keras.models.clone_model(template.networks[name].model) for name in preset.agent.networks}


def run_cell(agent, feature, folder):
    """Returns the result of one cell: "works", "refused: REASON" or "fails: REASON"."""
    from tfsac.parameters import RunParameters

    run_dir = folder / agent / feature
    _, changes, settings = FEATURES[feature]
    if agent.endswith("sqil") and feature in ("prioritized", "prior_data", "hindsight"):
        return "refused: SQIL has its own replay memory, which samples uniformly"
    if agent.endswith("sqil") and feature == "level":
        changes = {"agent.memory.demonstrations": str(run_dir.with_suffix(".npz"))}
    if feature == "prior_data":
        data = str(demonstrations(agent, folder))
        changes = {"agent.memory": {"kind": "prior_data", "demonstrations": data, "max_size": 1000}}
    functions = {}
    try:
        run = RunParameters(seed=1, checkpoint_save_steps=1000, **settings)
        preset = preset_of(agent, changes, folder)
        if feature == "level":
            preset = with_level(preset, agent, run_dir)
        if feature == "hindsight":
            preset = with_hindsight(preset, agent)
        if feature == "privileged":
            preset = with_privileged_critics(preset, agent, run_dir)
            if agent not in TEAMS:
                functions["env_fn"] = lambda: privileged(environment(agent))
        if feature == "env_fn":
            functions["env_fn"] = lambda: environment(agent)
        if feature in ("same_step", "next_step"):
            functions["env_fn"] = functools.partial(vector_environment, agent, feature)
        if feature == "models":
            functions["models"] = cloned_models(preset, run)
        run_all_commands(preset, run_dir, run, functions)
    except Exception as error:
        from tfsac.errors import TfsacError

        text = " ".join(str(error).split())
        created = run_dir.exists()
        if isinstance(error, TfsacError) and not created:
            return f"refused: {text}"
        traceback.print_exc()
        return f"fails{' after the run directory was written' if created else ''}: {type(error).__name__}: {text[:300]}"
    return "works"


def with_level(preset, agent, run_dir):
    """Returns a preset of a level that a module registers; demonstrations are of this level."""
    import gymnasium as gym

    import tfsac

    level, arguments = level_of(agent, own=True)
    if agent.endswith("sqil"):
        env = gym.make(level, **arguments)
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        recorded = tfsac.demonstrate(lambda observation: env.action_space.sample(), env, 30)
        tfsac.save_demonstrations(run_dir.with_suffix(".npz"), recorded._replace(level=level))
    settings = dataclasses.replace(preset.environment, level=level, kwargs=arguments)
    return dataclasses.replace(preset, environment=settings)


def run_all_commands(preset, run_dir, run, functions):
    """Trains, resumes, evaluates, exports and verifies the export."""
    import tfsac
    from tfsac import api, exporting
    from tfsac.exporting import loading

    class Stop(tfsac.Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps >= STOP_AT:
                trainer.stop("half of the run")

    first = tfsac.train(preset, run_dir, run, callbacks=[Stop()], quiet=True, **functions)
    assert STOP_AT <= first.counters.env_steps < STOP_AT + 8 and first.counters.updates > 0, first
    done = tfsac.train(preset, run_dir, run, resume=True, quiet=True, **functions)
    assert done.counters.env_steps > first.counters.env_steps and done.counters.updates > first.counters.updates, done
    assert done.reason == "finished", done
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0):
        return
    assert len(api.evaluate(run_dir, 1, **functions).returns) == 1
    policy = loading.load_policy(run_dir, **functions)
    path = exporting.export(policy, run_dir / "exported")
    observations = api.observations_of(run_dir, policy, env_fn=functions.get("env_fn"))
    difference = exporting.verify(policy, path, observations)
    assert difference <= exporting.TOLERANCE, f"exported actions differ by {difference}"


def run_cells(agent, features, folder, out):
    """Runs cells of one agent in this process and appends each result to a file."""
    with contextlib.ExitStack() as stack:
        if "mirrored" in features:
            create_two_devices()
        for feature in features:
            if feature == "ray":
                from tfsac.distributed.ray_cluster import connect

                stack.enter_context(connect("local"))
            if feature == "workers" and "TF_CONFIG" not in os.environ:
                result = run_two_workers(agent, folder)
            else:
                result = run_cell(agent, feature, folder)
            print(f"{agent:<14} {feature:<14} {result}", flush=True)
            with out.open("a") as file:
                file.write(json.dumps([agent, feature, result]) + "\n")


def create_two_devices():
    """Creates two logical devices, before TensorFlow is used."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def run_two_workers(agent, folder):
    """Runs a cell with two workers, each in its own process."""
    from strategy_tools import free_ports, tf_config

    ports, processes = free_ports(2), []
    outs = [folder / f"{agent}-worker{index}.jsonl" for index in range(2)]
    for index, out in enumerate(outs):
        processes.append(start_process(agent, ["workers"], folder, out, TF_CONFIG=tf_config(ports, index)))
    try:
        for process in processes:
            process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return f"fails: the workers timed out after {SECONDS} seconds"
    finally:
        for process in processes:
            process.kill()
    result = [json.loads(out.read_text().splitlines()[-1])[2] if out.exists() else "fails: no result" for out in outs]
    return next((one for one in result if one.startswith("fails")), result[0])


def start_process(agent, features, folder, out, **variables):
    """Starts a process that runs cells of one agent."""
    arguments = [f"--agents={agent}", f"--features={','.join(features)}", f"--folder={folder}", f"--out={out}"]
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", default=",".join(AGENTS), help="comma-separated names")
    parser.add_argument("--features", default=",".join(FEATURES), help="comma-separated names")
    parser.add_argument("--folder", type=pathlib.Path, help="folder for the runs; temporary by default")
    parser.add_argument("--out", type=pathlib.Path, help="file for results, one JSON line each")
    args = parser.parse_args()
    agents, features = args.agents.split(","), args.features.split(",")
    with contextlib.ExitStack() as stack:
        folder = args.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out = args.out or folder / "results.jsonl"
        if len(agents) == 1:
            run_cells(agents[0], features, folder, out)
        for agent in agents if len(agents) > 1 else ():
            start_process(agent, features, folder, out).wait()


if __name__ == "__main__":
    main()
