"""A training that runs in blocks when it is told to: each line on standard input is one block.

    block N           N iterations; prints {"ms": wall milliseconds of an iteration, "host_ms": of its calls}
    kineto N          the same with torch.profiler recording CPU and GPU
    end

Prints "ready" when it has warmed up. Jobs: launches (many short kernels), compute (few long ones),
graph (one CUDA graph an iteration)."""
import json
import os
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import common

WARM = 3  # iterations at a block's begin that do not count: the process has slept
CORES = 4  # of all processes that are compared: which cores one gets must not tell them apart


class Launches:
    """About 1,000 launches an iteration, none of which does much."""

    def __init__(self, options):
        size = 16 if options.tiny else 64
        layers = 8 if options.tiny else 60
        self.model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(size, size), nn.GELU())])
        self.model.to(options.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, foreach=False)
        self.batches = [torch.randn(n, size) for n in (16, 24, 32, 40)]
        self.device = options.device

    def step(self, index):
        batch = self.batches[index % 4].to(self.device, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        self.model(batch).square().mean().backward()
        self.optimizer.step()


class Compute(Launches):
    """Some 20 ms of matrix products, on tokens that are copied in a moment."""

    def __init__(self, options):  # pylint: disable=super-init-not-called
        size = 32 if options.tiny else 4096
        self.model = nn.Sequential(nn.Embedding(1000, size), *[nn.Linear(size, size) for _ in range(8)]).to(options.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        self.batches = [torch.randint(1000, (n * (1 if options.tiny else 256),)) for n in (16, 24, 32, 40)]
        self.device = options.device


class Graph(Launches):
    """The work of Launches at one size, recorded once and replayed."""

    def __init__(self, options):
        super().__init__(options)
        if options.device != "cuda":
            raise SystemExit("CUDA graphs need a GPU")
        self.static = self.batches[0].to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.work()

    def work(self):
        self.optimizer.zero_grad(set_to_none=False)
        self.model(self.static).square().mean().backward()
        self.optimizer.step()

    def step(self, index):
        self.static.copy_(self.batches[0], non_blocking=True)
        self.graph.replay()


def pin():
    """Before any thread is started."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 2 * CORES:
        os.sched_setaffinity(0, cores[-CORES:])


def main():
    pin()
    options = common.arguments(__doc__, job=("launches", "launches, compute or graph"))
    job = {"launches": Launches, "compute": Compute, "graph": Graph}[options.job](options)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None

    def block(count):
        for index in range(WARM):
            job.step(index)
        synchronize()
        begin = time.perf_counter()
        for index in range(count):
            job.step(index)
        host = time.perf_counter()
        synchronize()
        return {"ms": (time.perf_counter() - begin) * 1e3 / count, "host_ms": (host - begin) * 1e3 / count}

    block(5 if options.tiny else 100)
    print("ready", flush=True)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if options.device == "cuda" else [])
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "end":
            break
        if words[0] == "kineto":
            with profile(activities=activities):
                answer = block(int(words[1]))
        else:
            answer = block(int(words[1]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
