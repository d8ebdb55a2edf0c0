"""Rows of 2,048 tokens, packed with sequences of different lengths, which attend to themselves
alone: the time of an iteration goes by the sum of the squares of their lengths. An ordinary PyTorch
program on the CPU, which sleeps for as long.

  packed_rows.py [--pass cu_seqlens|position_ids|seqlens|nothing] [--steps 180]

Under the profiler, each in turn, with the length that it took and how much of the time it explains:

  SEQPOINT_BUILD=build/release python3 packed_rows.py --measure
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

TOKENS = 2048
PASSES = ("cu_seqlens", "position_ids", "seqlens", "nothing")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pass", dest="passes", choices=PASSES, default="cu_seqlens")
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--measure", action="store_true")
    return parser.parse_args()


def train(options):
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.set_num_threads(1)
    draw = random.Random(1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(256, 8)

        def forward(self, tokens, **described):
            time.sleep(2e-8 * sum(n * n for n in lengths))  # at most 84 ms
            return self.embedding(tokens)

    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.steps):
        lengths = []
        while sum(lengths) < TOKENS:
            lengths.append(min(int(draw.lognormvariate(5.5, 1)) + 1, TOKENS - sum(lengths)))
        ends = torch.tensor([0, *lengths]).cumsum(0)
        described = {
            "cu_seqlens": {"cu_seqlens": ends.int()},
            "position_ids": {"position_ids": torch.cat([torch.arange(n) for n in lengths])[None]},
            "seqlens": {"seqlens": lengths}, "nothing": {}}[options.passes]
        model(torch.randint(256, (1, TOKENS)), **described).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def measure(options):
    seqpoint = os.path.join(os.environ["SEQPOINT_BUILD"], "bin", "seqpoint")
    state = tempfile.mkdtemp(prefix="sqpp")
    for passes in PASSES:
        done = subprocess.run(
            [seqpoint, "run", "--json", "--job", passes, "--", sys.executable,
             os.path.abspath(__file__), "--pass", passes, "--steps", str(options.steps)],
            env=dict(os.environ, XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state),
            stdout=subprocess.PIPE, text=True, check=True)
        job = json.loads(done.stdout)["job"]
        print(f"{passes:12} {job['iterations']} iterations, {job['unique_lengths']} lengths; "
              f"{job['rule']['length']}; {job['time']['basis']}; "
              f"{json.dumps(job['time'].get('per_1000_iterations'))}", flush=True)


if __name__ == "__main__":
    given = parse()
    measure(given) if given.measure else train(given)
