"""Mistakes in networks, typed as `--set`: each ends in one line with status 2, and nothing is written."""

import pytest

from tfsac import cli

P, E = "agent.networks.", "agent.networks.policy.input_embedders_parameters"
CONV = '{"num_filters": 4, "kernel_size": 3, "stride": 1}'
# Preset, what is set, words of the error.
WRONG = [
    ("pendulum_twin_sac", E + '={"observatoin": {"scheme": [8]}}', "Did you mean 'observation'?"),
    ("pendulum_twin_sac", E + '={"features": {"scheme": [8]}}', "that the environment does not give; it gives "
                                                                "observation."),
    ("pendulum_twin_sac", E + '={"action_mask": {"scheme": [8]}}', "add --set='agent.networks.*.input_embedders_parameters={"),
    ("pendulum_twin_sac", E + "={}", "reads at least one observation key"),
    ("pendulum_twin_sac", E + "=5", "input_embedders_parameters: Input should be an object"),
    ("pendulum_twin_sac", E + ".observation.scheme=[0]", "scheme.0: Input should be greater than 0"),
    ("pendulum_twin_sac", E + ".observation.scheme=[2.5]", "scheme.0: Input should be a valid integer"),
    ("pendulum_twin_sac", E + ".observation.scheme=256", "'Medium' or 'Deep', or a list of layers such as [256, 256]. "
                                                         "Received: 256"),
    ("pendulum_twin_sac", E + ".observation.scheme=Mediun", "Did you mean 'Medium'?"),
    ("pendulum_twin_sac", E + f".observation.scheme=[{CONV}]", "Convolutions need an image [height, width, channels]: "
                                                               "add --set="),
    ("pendulum_twin_sac", E + f".observation.scheme=[8, {CONV}]", "Convolutions come before dense layers"),
    ("pendulum_twin_sac", E + '.observation.scheme=[{"num_filters": 4}]', "Conv2d needs the parameter 'kernel_size'"),
    ("pendulum_twin_sac", E + '.observation.scheme=[{"num_filters": 0, "kernel_size": 3, "stride": 1}]', "num_filters: Input should be greater than 0"),
    ("pendulum_twin_sac", E + ".observation.activation_function=glu", "Did you mean 'gelu'?"),
    ("pendulum_twin_sac", E + ".observation.flatten=yes", "flatten: Input should be a valid boolean"),
    ("pendulum_twin_sac", P + "*.embedding_merger_type=mean", "'concat' or 'sum'"),
    ("pendulum_twin_sac", P + "policy.middleware_parameters.scheme=Empy", "Did you mean 'Empty'?"),
    ("pendulum_twin_sac", P + 'policy.middleware_parameters={"kind": "lstm"}', "only agents of kinds 'discrete_acer' "
                                                                               "and 'gaussian_acer'"),
    ("pendulum_twin_sac", P + 'policy.middleware_parameters={"kind": "gru"}', "of kind 'fc', 'residual' or 'lstm'"),
    ("pendulum_twin_sac", P + "q.head_parameters.network_layers_sizes=64", "Input should be a valid array"),
    ("pendulum_twin_sac", P + 'q.head_parameters={"kind": "v"}', "The head of network 'q' is of kind 'q'"),
    ("pendulum_twin_sac", P + "q.head_parameters.num_critics=0", "num_critics: Input should be greater"),
    ("pendulum_twin_sac", P + "policy.head_parameters.init_w=0", "init_w: Input should be greater than 0"),
    ("pendulum_twin_sac", P + "*.learning_rate=NaN", "learning_rate: Input should be a finite number"),
    ("pendulum_twin_sac", P + "*.learning_rate=1e400", "learning_rate: Input should be a finite number"),
    ("pendulum_twin_sac", P + "*.learning_rate=0", "learning_rate: Input should be greater than 0"),
    ("pendulum_twin_sac", P + "*.learning_rate=fast", "learning_rate: Input should be a valid number"),
    ("pendulum_twin_sac", P + "*.learning_rate_decay_rate=0.5", "learning_rate_decay_rate needs "
                                                                "learning_rate_decay_steps >= 1"),
    ("pendulum_twin_sac", P + "policy.batch_size=64", "equal batch_size"),
    ("pendulum_twin_sac", P + "*.batch_size=0", "batch_size: Input should be greater than 0"),
    ("pendulum_twin_sac", P + "*.optimizer_type=adamw", "Did you mean 'AdamW'?"),
    ("pendulum_twin_sac", P + "*.optimizer_kwargs=0.9", "optimizer_kwargs: Input should be an object"),
    ("pendulum_twin_sac", P + "*.optimizer_kwargs.momentum=0.9", "optimizer_kwargs of Adam has amsgrad"),
    ("pendulum_twin_sac", P + "*.rms_prop_optimizer_decay=0.5", "choose RMSProp"),
    ("pendulum_twin_sac", P + "*.weight_decay=-1", "weight_decay: Input should be greater than or equal to 0"),
    ("pendulum_twin_sac", P + "*.initializer=zeros", "'xavier', 'he', 'orthogonal', 'normalized_columns', 'lecun_normal' or 'fan_in_uniform'"),
    ("pendulum_twin_sac", P + "*.clip_gradients=0", "clip_gradients: Input should be greater than 0"),
    ("pendulum_twin_sac", P + "v.learning_rate=1e-3", "Fields there: policy, q."),
    ("pendulum_twin_sac", P + "policy.create_target_network=true", "Only q has a target network"),
    ("pendulum_twin_sac", P + "policy.replace_mse_with_huber_loss=true", "belongs to networks that regress"),
    ("pendulum_twin_sac", "agent.networks={}", "This agent needs a network 'policy'"),
    ("pendulum_twin_sac", "agent.networks.policy=null", "policy: Input should be an object"),
    ("acer_partially_observable", P + "trunk.middleware_parameters.number_of_lstm_cells=0", "number_of_lstm_cells: "
                                                                                            "Input should be greater "
                                                                                            "than 0"),
    ("acer_partially_observable", E + '={"observation": {"scheme": [8]}}', "With a trunk the other networks read its "
                                                                           "features alone"),
    ("acer_pendulum", P + "advantage.head_parameters.num_critics=2", "This agent has one advantage"),
    ("acer_pendulum", P + "policy.head_parameters.min_variance=0", "min_variance: Input should be greater than 0"),
    ("taac_simple_control", P + 'policy.middleware_parameters={"kind": "lstm"}', "An LSTM learns from whole episodes"),
    ("cart_pole_discrete_sac", "agent.shared_encoder=true", "needs embedders with layers to share"),
]  # fmt: skip


@pytest.mark.parametrize(("preset", "assignment", "words"), WRONG, ids=[assignment for _, assignment, _ in WRONG])
def test_a_mistake_ends_in_one_line(tmp_path, capsys, preset, assignment, words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", f"--preset={preset}", f"--run_dir={tmp_path / 'run'}", f"--set={assignment}"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tfsac: ")]
    assert ended.value.code == 2 and words in line and "Received: " in line
    assert not (tmp_path / "run").exists()
