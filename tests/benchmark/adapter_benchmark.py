"""What the PyTorch adapter costs per iteration, in the steady state: a loop whose model and
optimiser do nothing, alone and under `seqpoint run` with a daemon of its own, in turns.

  SEQPOINT_BUILD=build/release python3 adapter_benchmark.py [--rounds 9]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

ITERATIONS = 150_000  # of which the last third is timed


def loop():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, input_ids=None, attention_mask=None, labels=None, decoder_ids=None):
            return None

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            return None

    model = Model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    batches = []
    for n in range(20, 60):
        source = torch.zeros(16, n, dtype=torch.long)
        target = torch.zeros(16, n + n % 7, dtype=torch.long)
        batches.append((source, target))

    def iterate(count):
        for i in range(count):
            source, target = batches[i % len(batches)]
            model(input_ids=source, attention_mask=source, labels=target, decoder_ids=target)
            optimizer.step()

    iterate(ITERATIONS * 2 // 3)
    begin = time.perf_counter()
    iterate(ITERATIONS // 3)
    print((time.perf_counter() - begin) / (ITERATIONS // 3) * 1e6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop", action="store_true")
    options = parser.parse_args()
    if options.loop:
        return loop()
    build = os.environ["SEQPOINT_BUILD"]
    folder = tempfile.mkdtemp(prefix="sqpb")
    daemon = subprocess.Popen([f"{build}/bin/seqpointd", "--dir", folder, "--store",
                               f"{folder}/store.db", "--log", f"{folder}/log"])
    environment = dict(os.environ, SEQPOINT_DIR=folder)
    program = [sys.executable, os.path.abspath(__file__), "--loop"]
    watched = [f"{build}/bin/seqpoint", "run", "--quiet", "--no-progress", "--", *program]
    try:
        while not os.path.exists(f"{folder}/api.sock"):
            time.sleep(0.05)
        alone, under, extra = [], [], []
        for _ in range(options.rounds):
            for command, times in ((program, alone), (watched, under)):
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                times.append(float(done.stdout))
            extra.append(under[-1] - alone[-1])
        for name, times in (("alone", alone), ("under the adapter", under), ("difference", extra)):
            print(f"{name:18} {statistics.median(times):6.2f} us per iteration "
                  f"({min(times):.2f} to {max(times):.2f}, {options.rounds} rounds)")
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    main()
