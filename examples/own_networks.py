"""Custom networks: `python examples/own_networks.py` replaces a preset's layers by residual Keras models.

docs/own_networks.md lists the inputs and outputs of each agent's models.
"""

import pathlib

import keras

import tfsac

RUN = pathlib.Path("runs/own_networks")


def residual(x: keras.KerasTensor, width: int = 64) -> keras.KerasTensor:
    """Applies two layers with a skip connection around the second."""
    x = keras.layers.Dense(width, "silu")(x)
    return keras.layers.Add()([x, keras.layers.Dense(width, "silu")(x)])


def make_models() -> dict[str, keras.Model]:
    """Returns new models for Pendulum-v1 (3 observation entries, 1 action) at each call: a policy and two critics."""
    seen, action = {"observation": keras.Input((3,), name="observation")}, keras.Input((1,), name="action")
    x = keras.layers.LayerNormalization()(residual(seen["observation"]))
    mean_and_log_std = [keras.layers.Dense(1)(x), keras.layers.Dense(1)(x)]  # before tanh
    both = keras.layers.Concatenate()([seen["observation"], action])
    values = [keras.layers.Dense(1)(residual(both)) for _ in range(2)]
    critics = keras.layers.Concatenate()(values)  # one column each
    return {"policy": keras.Model(seen, mean_and_log_std), "q": keras.Model([seen, action], critics)}


def main() -> None:
    """Trains, evaluates and exports; the exported policy needs neither this file nor tfsac."""
    preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), {"schedule.improve_steps": 5_000})
    tfsac.train(preset, RUN, models=make_models)
    done = tfsac.evaluate(RUN, episodes=10, models=make_models)
    path = tfsac.export(tfsac.load_policy(RUN, models=make_models), RUN / "exported")
    print(f"mean return {done.returns.mean():.1f}; exported to {path}")


if __name__ == "__main__":
    main()
