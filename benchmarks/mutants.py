"""Mutation tests: plants mistakes, one at a time, and checks whether the tests of the related packages catch them.

    python benchmarks/mutants.py                         # this tree
    python benchmarks/mutants.py --tree=DIR --column=before

Each mistake replaces one piece of code that occurs exactly once in `tfsac/`; the first spelling that does is used. The
tests run in a copy of the tree, until the first failure. Writes results/mutants.csv: for every mistake and column, the
first test that failed, "survived", or "absent" if no spelling is found; keeps the rows of earlier columns.
"""

import argparse
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "mutants.csv"
DISTUTILS = "ignore:The distutils package:DeprecationWarning"  # of TensorFlow Probability, in some environments
# Test modules by package, with those most likely to fail first. Modules that a tree lacks are skipped.
LOSSES = ["test_losses", "test_ensemble_losses", "test_taac_losses", "test_acer_losses", "test_golden_*"]
AGENTS = ["test_golden_*", "test_soft_*", "test_twin_*", "test_discrete_soft*", "test_ensembles", "test_temperatures"]
TAAC = ["test_taac_losses", "test_golden_taac", "test_taac_agent"]
ACER = ["test_acer_losses", "test_golden_acer", "test_acer_update", "test_acer_agent", "test_acer_policy"]
MEMORIES = ["test_memories", "test_sequence_memory", "test_episodic_memory", "test_frames"]
PRIORITIES = ["test_prioritized", "test_memories"]
DATA = ["test_prior_data", "test_imitation_training"]
NORMALISATION = [
    "test_normalization",
    "test_return_scaling",
    "test_environments",
    "test_memories",
    "test_trainer",
    "test_export",
]
CHECKPOINTS = [
    "test_checkpoint",
    "test_trainer",
    "test_run_folder",
    "test_normalization",
    "test_return_scaling",
    "test_discrete_training",
]
EXPORTS = ["test_export", "test_export_formats", "test_environments", "test_real_robot"]
ENVIRONMENTS = ["test_environments", "test_final_observations", "test_teams"]
TRAINING = ["test_updates", "test_trainer", "test_resets", "test_discrete_training", "test_learning_rates"]
# Description; spellings (right, wrong), with the file name if the code occurs in several files; tests.
MUTANTS = [
    # losses and targets
    ("min over critics becomes max", [("tf.reduce_min(q_BN, axis=-1) - alpha", "tf.reduce_max(q_BN, axis=-1) - alpha")], LOSSES),
    ("entropy is added with the wrong sign", [("axis=-1) - alpha * log_prob_B\n", "axis=-1) + alpha * log_prob_B\n")], LOSSES),
    ("discrete expectation without the entropy", [("tf.reduce_min(q_BNA, axis=1) - alpha * log_prob_BA)", "tf.reduce_min(q_BNA, axis=1))")], LOSSES),
    ("bootstrap target keeps its gradient", [("return tf.stop_gradient(reward_B + discount_B * next_value_B)", "return reward_B + discount_B * next_value_B")], [*LOSSES, *AGENTS]),
    ("Huber's loss without its constant", [("2.0 * tf.abs(error) - 1.0)", "2.0 * tf.abs(error))")], LOSSES),
    ("categorical target is shifted by the wrong sign of low", [("+ (discount_B - 1.0) * support.low", "- (discount_B - 1.0) * support.low")], LOSSES),
    ("projection without clipping to the atoms", [("inside_BJ = tf.clip_by_value(position_BK, 0.0, size - 1.0)", "inside_BJ = position_BK")], LOSSES),
    ("quantile weights are swapped", [("tf.where(error_BKM < 0.0, 1.0 - tau_K1, tau_K1)", "tf.where(error_BKM < 0.0, tau_K1, 1.0 - tau_K1)")], LOSSES),
    ("pooled quantiles drop one too few", [("critics * (size - drop_per_critic)]", "critics * (size - drop_per_critic) + 1]")], LOSSES),
    ("the ensemble's target uses the mean for the minimum", [('if reduction in ("min", "index_min"):', 'if reduction in ("index_min",):')], LOSSES),
    ("the ensemble's target keeps the entropy of alpha = 1", [("(next_value - alpha * log_prob)", "(next_value - log_prob)")], LOSSES),
    ("tanh's log slope has the wrong factor", [("log_slope = 2.0 * (math.log(2.0)", "log_slope = 1.0 * (math.log(2.0)")], [*LOSSES, *AGENTS]),
    ("the temperature's loss has the wrong sign", [("return -log_alpha * tf.stop_gradient(log_prob_B + target)", "return log_alpha * tf.stop_gradient(log_prob_B + target)")], [*LOSSES, *AGENTS]),
    # TAAC
    ("compare-through ignores that the step switched", [("last_TB1[t] | switched_TB1[t]", "last_TB1[t]")], TAAC),
    ("compare-through bootstraps past a terminal step", [("gamma_D * nonterminal_TB[t][:, None] * accumulated_BD", "gamma_D * accumulated_BD")], TAAC),
    ("the policy's loss of TAAC differentiates beta", [("tf.stop_gradient(switch_B) * switch_q_B", "switch_B * switch_q_B")], TAAC),
    ("padding rows count in TAAC's policy loss", [('self.mean_loss("policy", entries.mask_R * loss_R)', 'self.mean_loss("policy", loss_R)'), ('self.mean_loss("policy", rows.mask_R * loss_R)', 'self.mean_loss("policy", loss_R)')], TAAC),
    ("padding rows count in TAAC's temperatures", [("tf.reduce_mean(mask_B * loss_B)", "tf.reduce_mean(loss_B)"), ("tf.reduce_mean(mask_B * temperature.loss(", "tf.reduce_mean(temperature.loss(")], TAAC),
    # ACER
    ("Retrace is not cut at one", [("tf.exp(tf.minimum(0.0, log_ratio / action_size))", "tf.exp(log_ratio / action_size)")], ACER),
    ("truncated ratios are not truncated", [("tf.minimum(ratio_R, truncation)", "tf.maximum(ratio_R, truncation)")], ACER),
    ("the trust region is not subtracted", [("return gradient_RS - factor_R1 * k_RS,", "return gradient_RS,")], ACER),
    ("the average policy never moves", [("for name in self.policy.acts_through:\n            self.update_target(name)", "for name in ():\n            self.update_target(name)")], ACER),
    ("V's target without the truncated ratio", [("tf.exp(tf.minimum(0.0, log_ratio_R)) * (q_ret_R - q_R)", "(q_ret_R - q_R)")], ACER),
    # update order, gradients, targets
    ("Coach's target moves the wrong network's rate", [("delta=target - online", "delta=online - target")], AGENTS),
    ("the target copies instead of averaging", [("alpha=rate, delta=target - online", "alpha=1.0, delta=target - online"), ("alpha=rate,", "alpha=1.0,")], AGENTS),
    ("the target's period is off by one", [("(self.updates + 1) % self.target_period == 0", "self.updates % self.target_period == 0")], [*AGENTS, "test_updates", "test_resets"]),
    ("V is updated before the policy's sample", [("self.apply(value_gradients)\n        critic = self.critic_step(batch)", "critic = self.critic_step(batch)\n        self.apply(value_gradients)"), ("of the policy before its step\n        self.apply(*value.gradients)\n        critic = self.critic_step(batch)", "of the policy before its step\n        critic = self.critic_step(batch)\n        self.apply(*value.gradients)")], AGENTS),
    ("critic_first takes the policy's gradient first", [("critic = agent.critic_step(batch)\n    agent.apply(*critic.gradients)\n    policy = agent.policy_step(batch)\n", "policy = agent.policy_step(batch)\n    critic = agent.critic_step(batch)\n    agent.apply(*critic.gradients)\n"), ("critic = agent.critic_step(batch)\n    agent.apply(critic.gradients)\n    policy = agent.policy_step(batch)\n", "policy = agent.policy_step(batch)\n    critic = agent.critic_step(batch)\n    agent.apply(critic.gradients)\n")], AGENTS),
    ("simultaneous applies before all gradients are taken", [("critic, policy = agent.critic_step(batch), agent.policy_step(batch)\n    agent.apply(*critic.gradients, *policy.gradients)\n", "critic = agent.critic_step(batch)\n    agent.apply(*critic.gradients)\n    policy = agent.policy_step(batch)\n    agent.apply(*policy.gradients)\n"), ("critic, policy = agent.critic_step(batch), agent.policy_step(batch)\n    agent.apply(critic.gradients)\n", "critic = agent.critic_step(batch)\n    agent.apply(critic.gradients)\n    policy = agent.policy_step(batch)\n")], AGENTS),
    ("both samples of an update use the same noise", [('self.noise("next", [self.entries, self.policy.action_size])\n        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)\n        next_q_BN', 'self.noise("policy", [self.entries, self.policy.action_size])\n        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)\n        next_q_BN'), ('self.noise("next", [self.rows, self.policy.action_size])\n        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)\n        next_q_BN', 'self.noise("policy", [self.rows, self.policy.action_size])\n        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)\n        next_q_BN')], [*AGENTS, "test_noise_repetition"]),
    ("the noise is the same in every update", [("zlib.crc32(name.encode()), self.updates])", "zlib.crc32(name.encode()), tf.zeros([], tf.int64)])")], [*AGENTS, "test_noise_repetition", "test_updates"]),
    ("importance weights are ignored", [("return batch.weight[:, None] * loss_BN if self.prioritized else loss_BN", "return loss_BN"), ("loss_BN *= batch.weight[:, None]", "pass", "sac.py"), ("loss_BN *= batch.weight[:, None]", "pass", "twin_sac.py")], [*AGENTS, *PRIORITIES]),
    ("bootstrapping with the online critics", [('next_q_BN = self.targets["q"](', 'next_q_BN = self.networks["q"]('), ('self.targets["q"],\n            batch.next_observation', 'self.networks["q"],\n            batch.next_observation')], AGENTS),
    ("the policy's loss moves the discrete critics", [("tf.stop_gradient(q_BNA), policy.prob", "tf.zeros_like(q_BNA), policy.prob")], AGENTS),
    # memories
    ("n-step returns ignore ends of episodes", [('going &= (i <= later) & ~(flat["terminated"][last] | flat["truncated"][last])', "going &= i <= later")], MEMORIES),
    ("n-step returns forget gamma", [('self.powers[i] * self.reward_filter(flat["reward"][last])', 'self.reward_filter(flat["reward"][last])')], MEMORIES),
    ("truncation counts as termination", [('ended = records["terminated"] & (not self.ignore_done)', 'ended = (records["terminated"] | records["truncated"]) & (not self.ignore_done)'), ('~(records["terminated"] & (not self.ignore_done))', '~((records["terminated"] | records["truncated"]) & (not self.ignore_done))')], MEMORIES),
    ("n-step bootstraps with gamma instead of gamma^n", [("discount=self.powers[steps] * ~ended", "discount=self.powers[1] * ~ended"), ("discount=self.powers[steps] * ~(", "discount=self.powers[1] * ~(")], MEMORIES),
    ("sequences run over the end of an episode", [('(flat["terminated"][slot] | flat["truncated"][slot]) & ~after[:, t - 1]', 'flat["terminated"][slot] & ~after[:, t - 1]')], MEMORIES),
    ("priorities without their exponent", [("self.tree.set(self.sampled[kept] % self.ring.size, priority**self.alpha)", "self.tree.set(self.sampled[kept] % self.ring.size, priority)"), ("self.tree.set(self.sampled[still_stored] % self.ring.size, priority**self.alpha)", "self.tree.set(self.sampled[still_stored] % self.ring.size, priority)")], PRIORITIES),
    ("overwritten transitions get priorities", [("kept = self.sampled >= (self.total_rows - self.rows) * self.num_envs", "kept = self.sampled >= 0"), ("still_stored = self.sampled >= (self.total_rows - self.rows) * self.num_envs", "still_stored = self.sampled >= 0")], PRIORITIES),
    ("importance weights with the wrong sign of beta", [("(self.tree.minimum / self.tree.values(index)) ** beta", "(self.tree.values(index) / self.tree.minimum) ** beta")], PRIORITIES),
    ("own and demonstrated rewards are swapped", [("zero_and_one = np.zeros_like, np.ones_like", "zero_and_one = np.ones_like, np.zeros_like"), ('"reward_filter": np.zeros_like, "data_reward_filter": np.ones_like', '"reward_filter": np.ones_like, "data_reward_filter": np.zeros_like')], DATA),
    # normalisation
    ("observations are normalised by the variance", [("(1.0 / np.sqrt(self.squares[key] / max(self.count, 1) + EPSILON))", "(1.0 / (self.squares[key] / max(self.count, 1) + EPSILON))"), ("return np.sqrt(self.squares / max(self.count, 1) + EPSILON)", "return self.squares / max(self.count, 1) + EPSILON")], NORMALISATION),
    ("running returns continue over ends of episodes", [("self.running = np.where(ended, 0.0, returns)", "self.running = returns")], NORMALISATION),
    ("merging statistics forgets the distance of the means", [(" + delta**2 * (count * len(rows) / total)", ""), (".sum(axis=0) + between", ".sum(axis=0)")], NORMALISATION),
    # checkpoints and the loop
    ("a checkpoint without the sampler's random numbers", [('self.rng.bit_generator.state = state["rng"]\n', "pass\n")], CHECKPOINTS),
    ("a damaged chunk is not noticed", [("check_file(path, chunk)\n", "pass\n"), ("for path, expected in files.items():\n        if digest(path)", "for path, expected in ():\n        if digest(path)")], [*CHECKPOINTS, "test_damage", "test_salvage"]),
    ("one update less than the ratio says", [("periods * algorithm.num_consecutive_training_steps - counters.updates", "periods * algorithm.num_consecutive_training_steps - counters.updates - 1")], [*TRAINING, *CHECKPOINTS]),
    # exports and acting
    ("an export maps actions without the middle of the bounds", [("action * leaf.scale + (0.5 * leaf.low + 0.5 * leaf.high)", "action * leaf.scale")], EXPORTS),
    ("an export does not clip normalised observations", [("tf.clip_by_value((x - scale[key][0]) * scale[key][1], -bound, bound)", "(x - scale[key][0]) * scale[key][1]")], EXPORTS),
    ("masked actions keep their probability", [("self.prob = tf.where(self.mask, tf.exp(log_prob), zero)", "self.prob = tf.exp(log_prob)")], [*LOSSES, *AGENTS, *EXPORTS]),
]  # fmt: skip


def plant(tree, spellings):
    """Replaces the first spelling that occurs exactly once; returns whether there was one."""
    for right, wrong, *name in spellings:
        paths = (tree / "tfsac").rglob(name[0] if name else "*.py")
        found = [path for path in paths if right in path.read_text(encoding="utf-8")]
        if len(found) == 1 and found[0].read_text(encoding="utf-8").count(right) == 1:
            found[0].write_text(found[0].read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
            return True
    return False


def verdict(source, spellings, globs, python, limit):
    """Returns the first test that fails with a mistake, "survived" or "absent"."""
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "main"
        ignored = shutil.ignore_patterns(".git", ".venv", "*cache*", "runs", "build", "*.egg-info")
        shutil.copytree(source, tree, ignore=ignored)
        if not plant(tree, spellings):
            return "absent"
        modules = [path for glob in globs for path in sorted((tree / "tests").glob(f"{glob}.py"))]
        command = [
            python,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            DISTUTILS,
            *dict.fromkeys(modules),
        ]
        environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return f"timeout after {limit} s"
        failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 1) and not failed:
            return f"pytest ended with {done.returncode}: {done.stdout[-200:]!r}"
        return failed[1] if failed else "survived"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, default=HERE.parent)
    parser.add_argument("--column", default="after")
    parser.add_argument("--only", default="", help="only mistakes whose description contains this text")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--limit", type=float, default=1800, help="seconds for the tests of one mistake")
    parser.add_argument("--check", action="store_true", help="only print which mistakes are absent")
    args = parser.parse_args()
    if args.check:
        for what, spellings, _ in MUTANTS:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(args.tree / "tfsac", pathlib.Path(folder) / "tfsac")
                if not plant(pathlib.Path(folder), spellings):
                    print(f"{what}: absent")
        print(f"{len(MUTANTS)} mistakes")
        return
    rows = {}
    if RESULTS.is_file():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = {row["mistake"]: row for row in csv.DictReader(file)}
    for what, spellings, globs in MUTANTS:
        if args.only not in what or rows.get(what, {}).get(args.column):
            continue
        found = verdict(args.tree.resolve(), spellings, globs, args.python, args.limit)
        rows.setdefault(what, {"mistake": what})[args.column] = found
        print(f"{what}: {found}", flush=True)
        columns = ["mistake", *sorted({key for row in rows.values() for key in row} - {"mistake"}, reverse=True)]
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, columns, lineterminator="\n")
            table.writeheader()
            table.writerows(rows.values())


if __name__ == "__main__":
    main()
