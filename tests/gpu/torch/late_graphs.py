"""A training whose iterations are CUDA graphs, one for each length, captured when the length first comes; a
new length comes every 20 iterations. Told what to do line by line, as the soak_job of seqpoint_gpu_probe:

    block N      N iterations; {"ms", "host_ms", "captured_lengths", "captures_failed", "failure"}
    end

--how graph: torch.cuda.graph; compile: torch.compile, mode "reduce-overhead"."""
import json
import sys
import time

import torch
from torch import nn

import common

NEW_EVERY = 20


class Model(nn.Module):
    def __init__(self, size, layers):
        super().__init__()
        self.layers = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(size, size), nn.GELU())])

    def forward(self, batch):
        return self.layers(batch).square().mean()


class Training:
    def __init__(self, options):
        self.size, layers = (16, 4) if options.tiny else (128, 20)
        self.device = options.device
        self.model = Model(self.size, layers).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)  # graphs need them to stay where they are
        self.compiled = torch.compile(self.model, mode="reduce-overhead", dynamic=True) if options.how == "compile" else None
        self.known = [16, 24, 32, 40]
        self.iterations = 0
        self.graphs = {}
        self.total = torch.zeros((), device=self.device)
        self.captured, self.failed, self.failure = [], 0, "none"
        if self.device == "cuda" and self.compiled is None:
            # Libraries make their workspaces before the first capture.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.work(self.model, torch.zeros(16, self.size, device=self.device))
            torch.cuda.current_stream().wait_stream(stream)

    def work(self, model, batch):
        self.optimizer.zero_grad(set_to_none=False)
        loss = model(batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self, length):
        static = torch.zeros(length, self.size, device=self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.work(self.model, static)
        return static, graph, loss

    def length(self):
        index = self.iterations
        if index and index % NEW_EVERY == 0:
            self.known.append(40 + 2 * (index // NEW_EVERY))
        return self.known[-1] if index % NEW_EVERY < 2 else self.known[index * 7 % len(self.known)]

    def iterate(self):
        length = self.length()
        self.iterations += 1
        batch = torch.randn(length, self.size, pin_memory=self.device == "cuda")
        if self.compiled is not None or self.device != "cuda":
            if length not in self.graphs:
                self.graphs[length] = None
                self.captured.append(length)
            try:
                loss = self.work(self.compiled or self.model, batch.to(self.device, non_blocking=True))
            except RuntimeError as reason:
                self.note(reason)
                return
        else:
            if length not in self.graphs:
                try:
                    self.graphs[length] = self.capture(length)
                    self.captured.append(length)
                except RuntimeError as reason:
                    self.note(reason)
            if length in self.graphs:
                static, graph, loss = self.graphs[length]
                static.copy_(batch, non_blocking=True)
                graph.replay()
            else:
                loss = self.work(self.model, batch.to(self.device, non_blocking=True))
        self.total += loss.detach()  # a kernel that is in no graph
        self.total.item()

    def note(self, reason):
        self.failed += 1
        self.failure = str(reason).strip().splitlines()[0][:300]

    def tell(self):
        told, self.captured = self.captured, []
        return {"captured_lengths": told, "captures_failed": self.failed, "failure": self.failure}


def main():
    options = common.arguments(__doc__, how=("graph", "graph or compile"))
    training = Training(options)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, count = line.strip().partition(" ")
        if verb != "block":
            break
        begin, host = time.perf_counter(), time.thread_time()
        for _ in range(int(count)):
            training.iterate()
        per = 1e3 / int(count)
        print(json.dumps({"ms": (time.perf_counter() - begin) * per, "host_ms": (time.thread_time() - host) * per,
                          **training.tell()}), flush=True)


if __name__ == "__main__":
    main()
