"""What the PyTorch adapter costs per iteration in the steady state: a loop whose model and optimiser
do nothing, under `seqpoint run` with a daemon of its own. Blocks of iterations through the
adapter's hooks and past them take turns in one process.

  SEQPOINT_BUILD=build/release python3 adapter_benchmark.py [--blocks 100]
"""

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 100_000
BLOCK = 2_000


def loop(blocks):
    import torch
    from torch import nn

    def make_model():  # of a class of its own
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(1))

            def forward(self, input_ids=None, attention_mask=None, labels=None, decoder_ids=None):
                return None

        return Model()

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            return None

    model, unwatched = make_model(), make_model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    batches = []
    for n in range(20, 60):
        source = torch.zeros(16, n, dtype=torch.long)
        target = torch.zeros(16, n + n % 7, dtype=torch.long)
        batches.append((source, target))

    def iterate(count, model, step):
        begin = time.perf_counter()
        for i in range(count):
            source, target = batches[i % len(batches)]
            model(input_ids=source, attention_mask=source, labels=target, decoder_ids=target)
            step(optimizer)
        return (time.perf_counter() - begin) / count * 1e6

    hooked_step = plain_step = Optimizer.step
    while getattr(plain_step, "seqpoint", False):
        plain_step = plain_step.__wrapped__
    iterate(WARM_UP, model, hooked_step)
    # PyTorch 2 hooks steps globally.
    hooks = vars(importlib.import_module("torch.optim.optimizer")).get(
        "_global_optimizer_post_hooks", {})
    plain, hooked, extra = [], [], []
    for _ in range(blocks):
        kept = dict(hooks)
        hooks.clear()
        plain.append(iterate(BLOCK, unwatched, plain_step))
        hooks.update(kept)
        hooked.append(iterate(BLOCK, model, hooked_step))
        extra.append(hooked[-1] - plain[-1])
    for name, times in (("past the hooks", plain), ("through them", hooked), ("difference", extra)):
        low, middle, high = statistics.quantiles(times, n=4)
        print(f"{name:15} {middle:6.2f} us per iteration (quartiles {low:.2f} to {high:.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--loop", action="store_true")
    options = parser.parse_args()
    if options.loop:
        return loop(options.blocks)
    build = os.environ["SEQPOINT_BUILD"]
    folder = tempfile.mkdtemp(prefix="sqpb")
    daemon = subprocess.Popen([f"{build}/bin/seqpointd", "--dir", folder, "--store",
                               f"{folder}/store.db", "--log", f"{folder}/log"])
    try:
        while not os.path.exists(f"{folder}/api.sock"):
            time.sleep(0.05)
        return subprocess.run(
            [f"{build}/bin/seqpoint", "run", "--quiet", "--no-progress", "--", sys.executable,
             os.path.abspath(__file__), "--loop", "--blocks", str(options.blocks)],
            env=dict(os.environ, SEQPOINT_DIR=folder)).returncode
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
