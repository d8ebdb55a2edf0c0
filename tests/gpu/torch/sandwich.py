"""A training that starts torch.profiler itself between two halves (question 12). Told what to do line by
line; prints "ready", then a line of JSON for each:

    block N      N iterations; {"ms", "host_ms": milliseconds of an iteration and of its calls, "median_ms":
                 the median of the single ones, by the GPU's events}
    profile N    the same under torch.profiler; {"kernels", "operators": what its trace has, "cupti": the
                 library that this process has}
    end

TEARDOWN_CUPTI=1 makes the profiler end CUPTI when it has finished (kineto's teardownContext)."""
import json
import statistics
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

import common
from overhead import Launches


class Clock:
    """Marks between iterations, read when all have passed."""

    def __init__(self, cuda):
        self.cuda = cuda
        self.marks = []

    def mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def times(self):
        if self.cuda:
            return [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [(b - a) * 1e3 for a, b in zip(self.marks, self.marks[1:])]


def main():
    options = common.arguments(__doc__)
    cuda = options.device == "cuda"
    job = Launches(options)

    def block(count):
        clock = Clock(cuda)
        begin = time.perf_counter()
        for index in range(count):
            clock.mark()
            job.step(index)
        clock.mark()
        host = time.perf_counter()
        if cuda:
            torch.cuda.synchronize()
        return {"ms": (time.perf_counter() - begin) * 1e3 / count, "host_ms": (host - begin) * 1e3 / count,
                "median_ms": statistics.median(clock.times())}

    block(5 if options.tiny else 20)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, count = line.strip().partition(" ")
        if verb == "block":
            answer = block(int(count))
        elif verb == "profile":
            with profile(activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])) as own:
                block(int(count))
            events = own.events()
            # Matrix products: one for each layer and iteration; other operators come and go with the allocator.
            answer = {"kernels": sum("cuda" in str(event.device_type).lower() for event in events),
                      "operators": sum(event.name == "aten::addmm" for event in events), "cupti": common.cupti()}
        else:
            break
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
