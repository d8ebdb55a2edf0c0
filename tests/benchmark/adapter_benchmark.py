"""What the PyTorch adapter costs per iteration in the steady state: a loop whose model and optimiser
do nothing, under `seqpoint run` with a daemon of its own. Blocks of iterations through the
adapter's hooks and past them take turns in one process.

  SEQPOINT_BUILD=build/release python3 adapter_benchmark.py [--blocks 100] [--collectives]

--collectives: what a collective of gloo costs instead, in a group of one rank, for a call by Python
(allreduce and wait) and for one by C++ (broadcast).
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
COLLECTIVES_BLOCK = 100


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
    report("iteration", plain, hooked, extra)


def report(what, plain, hooked, extra):
    for name, times in (("past the hooks", plain), ("through them", hooked), ("difference", extra)):
        low, middle, high = statistics.quantiles(times, n=4)
        print(f"{name:15} {middle:6.2f} us per {what} (quartiles {low:.2f} to {high:.2f}, "
              f"smallest {min(times):.2f})")


def collectives(blocks):
    import torch
    from torch import distributed, nn

    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0,
                                       world_size=1)
    # The library begins with the first step.
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    group, options = distributed.distributed_c10d._get_default_group(), distributed.AllreduceOptions()
    tensors, c10d = [torch.ones(4)], torch._C._distributed_c10d
    allreduce, wait = c10d.ProcessGroup.allreduce, c10d.Work.wait
    broadcast = distributed._broadcast_coalesced

    def by_python(allreduce, wait, _):
        wait(allreduce(group, tensors, options))

    def by_cpp(_, __, broadcast):
        broadcast(group, tensors, 1 << 20, 0)

    def iterate(function, *functions):
        begin = time.perf_counter()
        for _ in range(COLLECTIVES_BLOCK):
            function(*functions)
        return (time.perf_counter() - begin) / COLLECTIVES_BLOCK * 1e6

    for name, function in (("collective by Python", by_python), ("collective by C++", by_cpp)):
        plain, hooked, extra = [], [], []
        for _ in range(blocks):
            below = torch._C._AutoDispatchBelowAutograd()  # past our functions in the dispatcher
            plain.append(iterate(function, allreduce.__wrapped__, wait.__wrapped__,
                                 broadcast.__wrapped__))
            del below
            hooked.append(iterate(function, allreduce, wait, broadcast))
            extra.append(hooked[-1] - plain[-1])
        report(name, plain, hooked, extra)
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--collectives", action="store_true")
    parser.add_argument("--loop", action="store_true", help="for the process that is measured")
    options = parser.parse_args()
    if options.loop:
        return (collectives if options.collectives else loop)(options.blocks)
    build = os.environ["SEQPOINT_BUILD"]
    folder = tempfile.mkdtemp(prefix="sqpb")
    daemon = subprocess.Popen([f"{build}/bin/seqpointd", "--dir", folder, "--store",
                               f"{folder}/store.db", "--log", f"{folder}/log"])
    try:
        while not os.path.exists(f"{folder}/api.sock"):
            time.sleep(0.05)
        return subprocess.run(
            [f"{build}/bin/seqpoint", "run", "--quiet", "--no-progress", "--", sys.executable,
             os.path.abspath(__file__), "--loop", "--blocks", str(options.blocks),
             *["--collectives"] * options.collectives],
            env=dict(os.environ, SEQPOINT_DIR=folder)).returncode
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
