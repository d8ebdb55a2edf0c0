"""Pairs of one change each: true times of both sides, and a trace of each.

Prints a JSON line per side: {"pair", "side", "ms", ...}, or {"pair", "side", "skipped": why}. Times
are medians of iterations by CUDA events, without any profiler; the trace is of three iterations
that come later."""
import gzip
import json
import os
import shutil
import statistics
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import common


class Skip(Exception):
    pass


class Encoder(nn.Module):
    """A transformer without what a compiler or a graph cannot capture."""

    def __init__(self, tiny):
        super().__init__()
        self.size, layers = (32, 2) if tiny else (768, 6)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(self.size, 2 if tiny else 12, 4 * self.size, dropout=0.0,
                                                                batch_first=True) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def batch(self, size):
        return torch.randn(size, 128 if self.size > 32 else 8, self.size)


class Images(nn.Module):
    def __init__(self, tiny):
        super().__init__()
        width, layers = (8, 2) if tiny else (256, 8)
        self.edge = 8 if tiny else 56
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*[m for _ in range(layers) for m in
                                    (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())])

    def forward(self, x):
        return self.body(self.first(x))

    def batch(self, size):
        return torch.randn(size, 3, self.edge, self.edge)


class Slow(torch.utils.data.Dataset):
    """Examples that cost the CPU something, as decoding an image does."""

    def __init__(self, tiny):
        self.size, self.work = (32, 16) if tiny else (768, 220)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        noise = torch.randn(self.work, self.work)
        for _ in range(3):
            noise = noise @ noise / self.work
        return torch.randn(128 if self.size > 32 else 8, self.size) + noise.mean() * 0


class Job:
    """One side of a pair. `change`: what differs."""

    def __init__(self, options, model=Encoder, batch=32, tf32=True, autocast=False, adam="foreach", graph=False,
                 compiled=False, channels_last=False, workers=None):
        tiny = options.tiny
        self.cuda = options.device == "cuda"
        self.device = options.device
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.manual_seed(1)
        self.model = model(tiny).to(self.device)
        make = self.model.batch
        self.autocast = autocast
        choice = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[adam]
        if adam == "fused" and not self.cuda:
            raise Skip("fused Adam needs a GPU")
        if graph:
            choice["capturable"] = True
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-5, **choice)
        size = max(2, batch // 8) if tiny else batch
        self.hosts = [make(size).pin_memory() if self.cuda else make(size) for _ in range(4)]
        self.channels_last = channels_last
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.hosts = [h.contiguous(memory_format=torch.channels_last) for h in self.hosts]
        self.loader = None
        if workers is not None:
            if workers and not hasattr(os, "fork"):
                raise Skip("DataLoader workers need fork")
            self.loader = iter(torch.utils.data.DataLoader(Slow(tiny), batch_size=size, num_workers=workers,
                                                           pin_memory=self.cuda))
        if compiled:
            if not hasattr(torch, "compile"):
                raise Skip(f"PyTorch {torch.__version__} has no torch.compile")
            if not self.cuda:
                raise Skip("torch.compile is measured on a GPU")
            self.model = torch.compile(self.model)
        self.graph = None
        self.keeps_gradients = graph  # a graph needs their memory again; else they are freed, as in most scripts
        if graph:
            if not self.cuda:
                raise Skip("CUDA graphs need a GPU")
            self.static = self.hosts[0].to(self.device)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.work(self.static)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.work(self.static)

    def work(self, batch):
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        if self.autocast:
            with torch.autocast(self.device, dtype=torch.bfloat16):
                loss = self.model(batch).float().square().mean()
        else:
            loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()

    def step(self, index):
        host = next(self.loader) if self.loader is not None else self.hosts[index % 4]
        if self.graph is not None:
            self.static.copy_(host, non_blocking=True)
            self.graph.replay()
        else:
            self.work(host.to(self.device, non_blocking=True))


PAIRS = {
    "tf32": ({"tf32": False}, {"tf32": True}),
    "bf16": ({}, {"autocast": True}),
    "adam_foreach": ({"adam": "for-loop"}, {"adam": "foreach"}),
    "adam_fused": ({"adam": "for-loop"}, {"adam": "fused"}),
    "cuda_graph": ({"batch": 8, "adam": "foreach"}, {"batch": 8, "adam": "foreach", "graph": True}),
    "compile": ({}, {"compiled": True}),
    "channels_last": ({"model": Images, "autocast": True}, {"model": Images, "autocast": True, "channels_last": True}),
    "batch_8_32": ({"batch": 8}, {"batch": 32}),
    "batch_8_128": ({"batch": 8}, {"batch": 128}),
    "batch_8_256": ({"batch": 8}, {"batch": 256}),
    "workers": ({"workers": 0}, {"workers": 4}),
}


def measure(job, iterations):
    """Median ms of an iteration; for data loading, whose cost comes in lumps, the mean."""
    marks = []
    synchronize = torch.cuda.synchronize if job.cuda else lambda: None

    def mark():
        if job.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append(event)
        else:
            marks.append(time.perf_counter() * 1e3)
    for index in range(max(3, iterations // 5)):
        job.step(index)
    synchronize()
    begin = time.perf_counter()
    for index in range(iterations):
        mark()
        job.step(index)
    mark()
    synchronize()
    wall = (time.perf_counter() - begin) * 1e3 / iterations
    times = [a.elapsed_time(b) if job.cuda else b - a for a, b in zip(marks, marks[1:])]
    return {"ms": wall if job.loader is not None else statistics.median(times), "wall_ms": wall,
            "p10_ms": sorted(times)[len(times) // 10], "p90_ms": sorted(times)[len(times) * 9 // 10]}


def trace(job, path):
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if job.cuda else [])
    for index in range(3):
        job.step(index)
    with profile(activities=activities) as recorded:
        for index in range(3):
            with torch.profiler.record_function(f"iteration {index}"):
                job.step(index)
        if job.cuda:
            torch.cuda.synchronize()
    recorded.export_chrome_trace(path)
    with open(path, "rb") as plain, gzip.open(path + ".gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    os.remove(path)
    return os.path.getsize(path + ".gz")


def main():
    options = common.arguments(__doc__, pairs=("", "names, by commas; default: all"), traces=("", "folder for traces"))
    for name in options.pairs.split(",") if options.pairs else PAIRS:
        for side, change in zip(("before", "after"), PAIRS[name]):
            answer = {"pair": name, "side": side}
            try:
                job = Job(options, **change)
                answer.update(measure(job, options.iterations or (5 if options.tiny else 60)))
                if options.traces:
                    answer["trace_bytes"] = trace(job, os.path.join(options.traces, f"{name}.{side}.json"))
                del job
            except Skip as reason:
                answer["skipped"] = str(reason)
            except Exception as error:  # one pair must not cost the others
                answer["failed"] = f"{type(error).__name__}: {error}"[:2000]
            if options.device == "cuda":
                torch.cuda.empty_cache()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
