"""A small training that ends in the way it is told to (question 11)."""
import os
import signal
import sys

import torch

import common


def main():
    options = common.arguments(__doc__, way=("normal", "how it ends"))
    model = torch.nn.Linear(64, 64).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    workers = 4 if options.way == "workers" else 0
    data = torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=4, num_workers=workers)
    for batch in data:
        optimizer.zero_grad()
        model(batch.to(options.device)).square().mean().backward()
        optimizer.step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    if options.way == "exception":
        raise RuntimeError("on purpose")
    if options.way == "sys_exit":
        sys.exit(7)
    if options.way == "os_exit":
        os._exit(9)
    if options.way in ("sigterm", "sigkill"):
        os.kill(os.getpid(), signal.SIGTERM if options.way == "sigterm" else signal.SIGKILL)


if __name__ == "__main__":
    main()
