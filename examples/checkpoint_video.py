"""Creates a video of a run's progress: one episode of the best policy at each checkpoint, side by side.

    tfsac train --preset=pendulum_twin_sac --run_dir=runs/pole --checkpoint_save_steps=1000 --num_checkpoints_to_keep=20
    python examples/checkpoint_video.py runs/pole learning.gif --steps 2000 3000 4000

All episodes start in the same state. If one ends early, its last frame stays visible.
"""

import argparse
import pathlib
import tempfile

import imageio.v2 as imageio
import numpy as np
from PIL import Image, ImageDraw

import tfsac


def frames_of(run_dir: str, step: int, folder: pathlib.Path, width: int) -> list[Image.Image]:
    """Returns the frames of an episode of the best policy up to a step, labelled with step and return."""
    video = folder / f"{step}.mp4"
    played = tfsac.evaluate(run_dir, episodes=1, dump_mp4=video, step=step)
    pictures = []
    for frame in imageio.mimread(video, memtest=False):
        picture = Image.fromarray(frame)
        picture = picture.resize((width, round(picture.height * width / picture.width)))
        ImageDraw.Draw(picture).text(
            (6, 4), f"{step} steps: {played.returns[0]:.0f}", fill="black", stroke_fill="white", stroke_width=2
        )
        pictures.append(picture)
    return pictures


def side_by_side(pictures: list[Image.Image], columns: int) -> np.ndarray:
    """Returns a grid of equally sized images with `columns` columns."""
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    grid = Image.new("RGB", (width * min(columns, len(pictures)), height * rows), "white")
    for i, picture in enumerate(pictures):
        grid.paste(picture, (i % columns * width, i // columns * height))
    return np.asarray(grid)


def main() -> None:
    """Plays the episodes and writes the video."""
    parser = argparse.ArgumentParser(description="Creates a video of a run's progress.")
    parser.add_argument("run_dir")
    parser.add_argument("out", type=pathlib.Path, help="a .gif or .mp4 file")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="environment steps of the checkpoints")
    parser.add_argument("--columns", type=int, default=3)
    parser.add_argument("--width", type=int, default=200, help="width of each episode in pixels")
    parser.add_argument("--every", type=int, default=3, help="show every n-th step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        videos = [frames_of(options.run_dir, step, pathlib.Path(folder), options.width) for step in options.steps]
    longest = max(map(len, videos))
    grids = [
        side_by_side([frames[min(i, len(frames) - 1)] for frames in videos], options.columns)
        for i in range(0, longest, options.every)
    ]
    if options.out.suffix == ".gif":
        imageio.mimsave(options.out, grids, duration=40, loop=0)  # type: ignore[arg-type]
    else:
        imageio.mimsave(options.out, grids, fps=25)  # type: ignore[arg-type]
    print(options.out)


if __name__ == "__main__":
    main()
