"""A continuous task from images: move a point to a target, observed as one greyscale image of 32 x 32 pixels.

    tfsac check --level=image_reacher:ImageReacher-v0
    tfsac train --preset=pendulum_twin_sac --level=image_reacher:ImageReacher-v0 --run_dir=runs/reacher

Run both in the folder of this file.
"""

import gymnasium
import numpy as np

SIDE, SIZE = 32, 3  # sides of the image and of the two squares in it, in pixels
SPEED = 0.2  # maximum distance per step in each direction; the room is 2 wide
CLOSE = 0.1  # a smaller distance counts as success


class ImageReacher(gymnasium.Env):
    """Actions are velocities in x and y. The reward is minus the distance between point and target.

    The point is white and the target grey. `info["is_success"]` is whether the point is close to the target.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Places point and target at random."""
        super().reset(seed=seed)
        self.point, self.target = self.np_random.uniform(-1.0, 1.0, (2, 2))
        return self.image(), {}

    def step(self, action):
        """Moves the point. Episodes never terminate; the time limit truncates them."""
        self.point = np.clip(self.point + SPEED * np.asarray(action), -1.0, 1.0)
        distance = float(np.linalg.norm(self.point - self.target))
        return self.image(), -distance, False, False, {"is_success": distance < CLOSE}

    def image(self):
        """Returns the top view of the room, uint8 `[32, 32, 1]`."""
        image = np.zeros((SIDE, SIDE, 1), np.uint8)
        for place, brightness in ((self.target, 128), (self.point, 255)):
            row, column = np.rint((place + 1.0) / 2.0 * (SIDE - SIZE)).astype(int)
            image[row : row + SIZE, column : column + SIZE] = brightness
        return image


gymnasium.register("ImageReacher-v0", ImageReacher, max_episode_steps=20)
