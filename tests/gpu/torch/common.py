"""What the training scripts share: real lengths, batches, and a log of their own.

Works with PyTorch 1.13 to 2.x, on a GPU or (--device cpu --tiny) without one. The log never waits
for the GPU: CUDA events are recorded between iterations and read at the end.
"""
import argparse
import csv
import ctypes
import os
import time

import torch

from lengths import draw_lengths, read_lengths


def arguments(description, **defaults):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a size that a CPU trains in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=0, help="0: the epoch of --lengths")
    parser.add_argument("--lengths", help="CSV of example lengths, an epoch; else drawn from the histogram")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
    parser.add_argument("--log", help="CSV with a row per iteration")
    parser.add_argument("--counters", help="CSV of every iteration's counters; needs --counter-library")
    parser.add_argument("--counter-library", help="libseqpoint_gpu_ranges.so")
    parser.add_argument("--metrics", default="")
    for name, (value, text) in defaults.items():
        if isinstance(value, bool):
            parser.add_argument("--" + name.replace("_", "-"), action="store_true", help=text)
        else:
            parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=text)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU; --device cpu --tiny trains without one")
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    return options


def cupti():
    """{"file", "version"} of the libcupti that this process has; None where it has none."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        path = next((line.split()[-1] for line in file if "/libcupti.so" in line), None)
    if path is None:
        return None
    version = ctypes.c_uint32()
    ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(version))
    return {"file": os.path.basename(path), "version": version.value}


# --- lengths and batches --------------------------------------------------------------------------

def epoch_lengths(options, name, examples):
    if options.lengths:
        return read_lengths(options.lengths)
    return draw_lengths(name, options.iterations * options.batch if options.iterations else examples, options.seed)


class Examples(torch.utils.data.Dataset):
    """`make(lengths, index)` makes the example's tensors."""

    def __init__(self, rows, make):
        self.rows = rows
        self.make = make

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.make(self.rows[index], index)


def loader(options, rows, make, collate):
    generator = torch.Generator()
    generator.manual_seed(options.seed)
    return torch.utils.data.DataLoader(
        Examples(rows, make), batch_size=options.batch, shuffle=True, collate_fn=collate, generator=generator,
        num_workers=options.workers, pin_memory=options.device == "cuda", drop_last=True)


# --- the log ---------------------------------------------------------------------------------------

class Log:
    """One row per iteration. Call begin() before the iteration's batch goes to the GPU, forward()
    before the forward pass, backward() before the backward pass, step() before the optimiser's
    step, and end() once."""

    def __init__(self, options):
        self.options = options
        self.cuda = options.device == "cuda"
        self.rows = []
        self.marks = []  # an event, or perf_counter, per row, and one for the end
        self.ranges = None
        if options.counters:
            self.ranges = ctypes.CDLL(options.counter_library)
            torch.zeros(1, device=options.device)  # the context must be there
            self._check(self.ranges.gpu_ranges_begin(options.metrics.encode()), "gpu_ranges_begin")
        self.in_range = False

    @staticmethod
    def _check(result, what):
        if result != 0:
            raise SystemExit(f"{what} gave {result}")

    def _mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def _close_range(self):
        if self.in_range:
            self._check(self.ranges.gpu_ranges_pop(), "gpu_ranges_pop")
            self.in_range = False

    def begin(self, lengths, batch, phase=""):
        """`lengths`: padded, as the kernels see them. `phase`: empty for training."""
        if self.ranges is not None:
            self._close_range()
        self._mark()
        if self.ranges is not None and not phase:
            self._check(self.ranges.gpu_ranges_push(), "gpu_ranges_push")
            self.in_range = True
        self.rows.append([len(self.rows), phase, list(lengths), batch, time.time_ns(), 0, 0, 0])

    def forward(self):
        self.rows[-1][5] = time.time_ns()

    def backward(self):
        self.rows[-1][6] = time.time_ns()

    def step(self):
        self.rows[-1][7] = time.time_ns()

    def trained(self):
        return sum(1 for row in self.rows if not row[1])

    def end(self):
        """Writes the log; total milliseconds of training iterations."""
        if self.ranges is not None:
            self._close_range()
        self._mark()
        if self.cuda:
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        else:
            times = [(b - a) * 1e3 for a, b in zip(self.marks, self.marks[1:])]
        if self.ranges is not None:
            self._check(self.ranges.gpu_ranges_end(self.options.counters.encode()), "gpu_ranges_end")
        if self.options.log:
            with open(self.options.log, "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                dimensions = len(self.rows[0][2]) if self.rows else 1
                writer.writerow(["iteration", "phase", *[f"length{i}" for i in range(dimensions)], "batch",
                                 "begin_ns", "forward_ns", "backward_ns", "step_ns", "duration_ms"])
                for row, ms in zip(self.rows, times):
                    writer.writerow([row[0], row[1], *row[2], *row[3:], f"{ms:.6f}"])
        return sum(ms for row, ms in zip(self.rows, times) if not row[1])


def train(options, log, batches, lengths_of, model, optimizer, loss_of, limit=0):
    """The loop of all scripts: copy, forward, loss, backward, step; the loss is read every 50."""
    for index, batch in enumerate(batches):
        if limit and log.trained() >= limit:
            break
        log.begin(lengths_of(batch), len(batch[0]))
        batch = tuple(t.to(options.device, non_blocking=True) for t in batch)
        optimizer.zero_grad(set_to_none=True)
        log.forward()
        loss = loss_of(model, batch)
        log.backward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        log.step()
        optimizer.step()
        if index % 50 == 49:
            loss.item()
