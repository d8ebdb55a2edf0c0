"""A training that starts torch.profiler itself for ten of its iterations (question 12)."""
import json

import torch
from torch.profiler import ProfilerActivity, profile

import common


def main():
    options = common.arguments(__doc__)
    size = 64 if options.tiny else 1024
    model = torch.nn.Sequential(*[torch.nn.Linear(size, size) for _ in range(8)]).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    count = 0

    def train(iterations):
        nonlocal count
        for index in range(iterations):
            batch = torch.randn(16 * (1 + index % 8), size).to(options.device)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            count += 1
        if options.device == "cuda":
            torch.cuda.synchronize()

    around = 20 if options.tiny else 200
    train(around)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if options.device == "cuda" else [])
    with profile(activities=activities) as own:
        train(10)
    on_gpu = [event for event in own.events() if "cuda" in str(event.device_type).lower()]
    # One for each layer and iteration; others come and go with the allocator.
    on_cpu = [event for event in own.events() if event.name == "aten::addmm"]
    train(around)
    print(json.dumps({"iterations": count, "kernels": len(on_gpu), "operators": len(on_cpu)}))


if __name__ == "__main__":
    main()
