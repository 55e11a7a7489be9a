"""Soft actor-critic in plain PyTorch, with the memory on the device and a compiled update: a baseline for gpu.py.

    python torch_sac.py [--calls 5] [--together 50] [--modes eager compiled graphs] [--seconds 1]

The same algorithm as xla_loop.py and `mujoco_twin_sac`: 17 observation entries, 6 action dimensions, batch 256, two
layers of 256, twin critics as one batched product, automatic temperature. `compiled` is torch.compile, `graphs` replays
a CUDA graph of it. Prints a line of JSON for each mode.
"""

import argparse
import itertools
import json
import statistics
import time

import torch

OBSERVATION, ACTION, BATCH, WIDTH, CAPACITY = 17, 6, 256, 256, 100_000
DISCOUNT, RATE, TAU = 0.99, 3e-4, 0.005


def stack(copies, sizes, device):
    """Returns weights `[N, in, out]` and biases of N multilayer perceptrons."""
    variables = []
    for into, out in itertools.pairwise(sizes):
        bound = into**-0.5
        weights = (2 * torch.rand(copies, into, out, device=device) - 1) * bound
        variables += [weights.requires_grad_(), torch.zeros(copies, 1, out, device=device, requires_grad=True)]
    return variables


def forward(variables, x):
    for i in range(0, len(variables), 2):
        x = torch.baddbmm(variables[i + 1], x, variables[i])
        x = torch.relu(x) if i < len(variables) - 2 else x
    return x


class Loop:
    """The networks, their optimizers and the memory."""

    def __init__(self, device):
        torch.manual_seed(1)
        torch.set_float32_matmul_precision("high")
        self.policy = stack(1, [OBSERVATION, WIDTH, WIDTH, 2 * ACTION], device)
        self.q = stack(2, [OBSERVATION + ACTION, WIDTH, WIDTH, 1], device)
        self.target = [x.detach().clone() for x in self.q]
        self.log_alpha = torch.zeros(1, device=device, requires_grad=True)
        cuda = device.startswith("cuda")
        self.optimizers = [
            torch.optim.Adam(variables, lr=RATE, capturable=cuda, foreach=True)
            for variables in (self.q, self.policy, [self.log_alpha])
        ]
        self.rows = torch.randn(CAPACITY, 2 * OBSERVATION + ACTION + 2, device=device)

    def sampled(self, observation):
        mean, log_std = forward(self.policy, observation[None])[0].chunk(2, -1)
        log_std, noise = log_std.clamp(-20, 2), torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        correction = 2 * (0.6931472 - u - torch.nn.functional.softplus(-2 * u))
        return u.tanh(), (-0.5 * noise * noise - log_std - 0.9189385 - correction).sum(-1)

    def values(self, variables, observation, action):
        return forward(variables, torch.cat([observation, action], -1).expand(2, -1, -1))[..., 0]

    def update(self):
        rows = self.rows[torch.randint(CAPACITY, (BATCH,), device=self.rows.device)]
        sizes = [OBSERVATION, ACTION, 1, 1, OBSERVATION]
        observation, action, reward, terminated, following = rows.split(sizes, -1)
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = self.sampled(following)
            next_value = self.values(self.target, following, next_action).amin(0) - alpha * next_log_prob
            y = reward[:, 0] + DISCOUNT * (1 - terminated[:, 0]) * next_value
        loss = 0.5 * ((self.values(self.q, observation, action) - y) ** 2).mean(-1).sum()
        self.step(0, loss, self.q)
        act, log_prob = self.sampled(observation)
        q = self.values([x.detach() for x in self.q], observation, act)
        self.step(1, (alpha * log_prob - q.amin(0)).mean(), self.policy)
        self.step(2, -(self.log_alpha * (log_prob.detach() - ACTION)).mean(), [self.log_alpha])
        with torch.no_grad():
            torch._foreach_lerp_(self.target, self.q, TAU)
        return loss.detach()

    def step(self, number, loss, variables):
        for variable, gradient in zip(variables, torch.autograd.grad(loss, variables), strict=True):
            variable.grad = gradient
        self.optimizers[number].step()


def captured(update):
    """Returns a function that replays a CUDA graph of an update."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = update()

    def replay():
        graph.replay()
        return loss

    return replay


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--together", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--modes", nargs="*", default=["graphs", "compiled", "eager"])
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    where = f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}"
    for mode in args.modes:
        loop, began = Loop("cuda" if cuda else "cpu"), time.perf_counter()
        update = loop.update if mode == "eager" else torch.compile(loop.update)
        if mode == "graphs" and cuda:
            update = captured(update)

        def call(update=update):
            for _ in range(args.together):
                loss = update()
            return loss.item()

        first = call()
        compiled, times = time.perf_counter() - began, []
        began = time.perf_counter()
        while len(times) < 3 or time.perf_counter() - began < args.seconds:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) / args.together)
        rates = [1 / statistics.median(times), 1 / max(times), 1 / min(times)]
        print(json.dumps([mode, *rates, compiled, where, first]), flush=True)


if __name__ == "__main__":
    main()
