"""Passes without gradients beside a training on the CPU: an ordinary PyTorch program that knows
nothing of the profiler and prints, as JSON, what its own clock says.

  gradient_free.py --by root|module|copy|inner [--passes 60] [--every 48] [--steps 240]

--by      who is called without gradients: what is trained (which wraps the model as DDP does), the
          model that it wraps, a deep copy of that (a moving average), or the model through a method
          of its own (`generate`)
--every   optimiser steps between two phases; 1: before each step, as rollouts come

Under the profiler, with a daemon of its own, each --by in turn beside what `seqpoint run` says:

  SEQPOINT_BUILD=build/release python3 gradient_free.py --measure [...]
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time

BY = ("root", "module", "copy", "inner")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by", choices=BY, default="root")
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument("--every", type=int, default=48)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--measure", action="store_true")
    return parser.parse_args()


def train(options):
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.set_num_threads(1)
    draw = random.Random(1)

    class LanguageModel(nn.Module):
        def __init__(self, hidden):
            super().__init__()
            self.embedding = nn.Embedding(512, hidden)
            self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
            self.output = nn.Linear(hidden, 512)

        def forward(self, tokens):
            return self.output(self.lstm(self.embedding(tokens))[0])

        def generate(self, tokens):
            return self(tokens)

    class Wrapper(nn.Module):  # as DistributedDataParallel wraps
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return self.module(*inputs)

    model = LanguageModel(options.hidden)
    root = Wrapper(model)
    called = {"root": root, "module": model, "copy": copy.deepcopy(model),
              "inner": model.generate}[options.by]
    optimizer = torch.optim.Adam(root.parameters())
    rollouts = options.every == 1
    first = apart_ns = 0

    def batch():
        return torch.randint(512, (8, draw.randint(20, 60)))

    def run_phase():
        nonlocal apart_ns
        begin = time.time_ns()
        if not rollouts:
            root.eval()
        with torch.no_grad():
            for _ in range(options.passes):
                called(batch())
        root.train()
        if first:  # what comes before the first iteration is in none
            apart_ns += time.time_ns() - begin

    for step in range(options.steps):
        if rollouts:
            run_phase()
        tokens = batch()
        first = first or time.time_ns()
        nn.functional.cross_entropy(root(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if not rollouts and (step + 1) % options.every == 0 and step + 1 < options.steps:
            run_phase()
    total_ns = time.time_ns() - first
    print(json.dumps({"train_s": (total_ns - apart_ns) / 1e9, "apart_s": apart_ns / 1e9}))


def measure(options):
    seqpoint = os.path.join(os.environ["SEQPOINT_BUILD"], "bin", "seqpoint")
    state = tempfile.mkdtemp(prefix="sqpg")
    environment = dict(os.environ, XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state)
    for by in BY:
        done = subprocess.run(
            [seqpoint, "run", "--json", "--job", by, "--", sys.executable,
             os.path.abspath(__file__), "--by", by, "--passes", str(options.passes), "--every",
             str(options.every), "--steps", str(options.steps), "--hidden", str(options.hidden)],
            env=environment, stdout=subprocess.PIPE, text=True, check=True)
        own, _, answer = done.stdout.partition("\n")
        own, job = json.loads(own), json.loads(answer)["job"]
        apart = {p["name"]: int(p.get("duration_ns", 0)) / 1e9 for p in job.get("phases", [])}
        whole = own["train_s"] + (own["apart_s"] if options.every == 1 else 0)
        figure = job["time"]["so_far"]
        print(f"{by:7} own clock {whole:7.3f} s, reported {figure['value'] / 1e9:7.3f} s "
              f"({figure['value'] / 1e7 / whole - 100:+.2f} %, {figure['low'] / 1e9:.3f} to "
              f"{figure['high'] / 1e9:.3f}), iterations {job['iterations']}; own clock apart "
              f"{0 if options.every == 1 else own['apart_s']:.3f} s, reported "
              f"{ {name: round(s, 3) for name, s in apart.items()} }", flush=True)


if __name__ == "__main__":
    given = parse()
    measure(given) if given.measure else train(given)
