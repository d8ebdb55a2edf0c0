#!/usr/bin/python3
"""What a batch costs that another process has just loaded.

A batch comes from a DataLoader's process in shared memory that is newly mapped: its file descriptor
is received, who reads it first has its pages mapped one by one, and the data come from memory, not
from the own cache; when it is let go, its pages are given back. Needs torch; no GPU. Prints the
time to receive a batch of one tensor, of the first and of the second copy of it, and to free it.
"""
import statistics
import time

import torch

BATCH, BATCHES = 32, 60


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return torch.full((3, 224, 224), float(index))


def main():
    torch.set_num_threads(1)
    place = torch.zeros(BATCH, 3, 224, 224)
    received, first, second, freed = [], [], [], []

    def timed(times, action):
        begin = time.perf_counter()
        result = action()
        times.append(1e3 * (time.perf_counter() - begin))
        return result

    batches = iter(torch.utils.data.DataLoader(Images(), batch_size=BATCH, num_workers=1))
    for _ in range(BATCHES):
        time.sleep(0.1)  # the loader is done with the next one, too
        held = [timed(received, lambda: next(batches))]
        for times in (first, second):
            timed(times, lambda: place.copy_(held[0]))
        timed(freed, held.clear)
    gigabytes = 4e-9 * place.numel()
    for name, of in (("least", min), ("median", statistics.median)):
        print(f"{name}: received {of(received):.2f} ms, first copy {of(first):.2f} ms, second "
              f"{of(second):.2f} ms, ratio {of(first) / of(second):.2f}, freed {of(freed):.2f} ms "
              f"({1e3 * gigabytes / of(freed):.1f} GB/s)")


if __name__ == "__main__":
    main()
