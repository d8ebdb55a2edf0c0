"""Lengths of real corpora, drawn from the histograms that the CUDA workloads draw from, too."""
import csv
import os
import random
import re

# In the bundle, and in the source tree: tests/workloads beside tests/gpu.
HISTOGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workloads", "histograms.cc")


def histogram(name):
    """(lengths per example, bin width, target bins, counts) of tests/workloads/histograms.cc."""
    with open(HISTOGRAMS, encoding="utf-8") as file:
        text = file.read()
    row = re.search(r'\{"%s", (\d+), (\d+), (\d+), (\w+)\}' % re.escape(name), text)
    if row is None:
        raise SystemExit(f"no histogram \"{name}\" in {HISTOGRAMS}")
    counts = re.search(r"constexpr int %s\[\] = \{([^}]*)\}" % row.group(4), text).group(1)
    return int(row.group(1)), int(row.group(2)), int(row.group(3)), [int(c) for c in counts.split(",")]


def draw_lengths(name, examples, seed):
    """Rows of one or two lengths, drawn as the CUDA workloads draw theirs."""
    lengths, width, target_bins, counts = histogram(name)
    rng = random.Random(seed)
    within = lambda index: index * width + 1 + rng.randrange(width)  # noqa: E731
    rows = []
    for index in rng.choices(range(len(counts)), weights=counts, k=examples):
        rows.append((within(index // target_bins), within(index % target_bins)) if lengths == 2 else (within(index),))
    return rows


def write_lengths(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["len_source", "len_target"] if len(rows[0]) == 2 else ["len"])
        writer.writerows(rows)


def read_lengths(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [tuple(int(cell) for cell in row) for row in rows]
