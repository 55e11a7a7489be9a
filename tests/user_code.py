"""A user's module with custom environments and networks."""

import gymnasium as gym
import keras
import numpy as np

LOW, HIGH = -5.0, -1.0


class Arm(gym.Env):
    """Has three observations, unusual action bounds and small frames."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None, low=LOW):
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Box(np.float32([low]), np.float32([HIGH]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = -float(np.abs(np.sum(action) + 2))
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), reward, False, self.steps >= 10, {}

    def render(self):
        return np.full((16, 16, 3), 20 * self.steps, np.uint8)


class Keys(gym.Env):
    """Has Dict observations; `keys` selects those of the policy, those of the critics, or others."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None, keys=("state", "hidden"), size=2, high=2.0, friction=0.0):
        self.render_mode, self.friction = render_mode, friction
        sizes = {"state": size, "hidden": 3, "extra": 1}
        self.observation_space = gym.spaces.Dict({key: gym.spaces.Box(-9.0, 9.0, (sizes[key],)) for key in keys})
        self.action_space = gym.spaces.Box(-1.0, high, (1,))

    def observe(self):
        return {
            key: self.np_random.normal(size=box.shape).astype(np.float32)
            for key, box in self.observation_space.spaces.items()
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), float(action[0]) - self.friction, False, self.steps == 20, {}

    def render(self):
        return np.full((16, 16, 3), self.steps, np.uint8)


gym.register("Keys-v0", Keys, max_episode_steps=20)
gym.register("OtherKeys-v0", Keys, max_episode_steps=7, kwargs={"keys": ("extra", "state"), "friction": 5.0})


def arm():
    return Arm()


def dense(x, size):
    return keras.layers.Dense(size)(keras.layers.Dense(8, "silu")(x))


def sac_models():
    """Returns the networks of SAC with continuous actions."""
    inputs, action = {"observation": keras.Input((3,), name="observation")}, keras.Input((1,))
    x = keras.layers.Dense(8, "silu")(inputs["observation"])
    policy = keras.Model(inputs, [keras.layers.Dense(1)(x) for _ in range(2)])
    both = keras.layers.Concatenate()([inputs["observation"], action])
    values = keras.layers.Concatenate()([dense(both, 1), dense(both, 1)])
    return {"policy": policy, "q": keras.Model([inputs, action], values)}


def models_with_v():
    """Returns the same networks and a state value network."""
    inputs = {"observation": keras.Input((3,), name="observation")}
    return {**sac_models(), "v": keras.Model(inputs, keras.layers.Reshape(())(dense(inputs["observation"], 1)))}
