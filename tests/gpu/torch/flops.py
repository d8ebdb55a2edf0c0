"""Matrix products of known operations, counted: a line of JSON for each configuration.

  flops.py --ranges libseqpoint_gpu_ranges.so --configs METRIC,METRIC:METRIC,... [--device cpu --tiny]

PyTorch's own kernels: on Hopper they use the tensor instructions (HGMMA) that no portable CUDA program
has. On the CPU nothing is counted: that tries this script.
"""
import argparse
import csv
import ctypes
import json
import os
import tempfile

import torch

PRODUCTS = [("FP64", torch.float64, False), ("FP32", torch.float32, False), ("TF32", torch.float32, True),
            ("BF16", torch.bfloat16, True), ("FP16", torch.float16, True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--ranges", required=True)
    parser.add_argument("--configs", required=True)
    options = parser.parse_args()
    size = 64 if options.tiny else 4096
    torch.zeros(1, device=options.device)  # a context
    ranges = ctypes.CDLL(options.ranges)
    if options.device == "cpu":
        ctypes.CDLL("libcudart.so.13").cudaFree(None)

    def check(result, call):
        if result != 0:
            raise SystemExit(f"{call} gave {result}")
    path = os.path.join(tempfile.mkdtemp(), "counters.csv")
    products = [product for product in PRODUCTS if options.device == "cuda" or product[1] != torch.float16]
    for config in options.configs.split(":"):
        for name, kind, tf32 in products:  # loaded and chosen before they are counted
            multiply(options, size, kind, tf32)
        check(ranges.gpu_ranges_begin(config.encode()), f"gpu_ranges_begin({config})")
        for name, kind, tf32 in products:
            operands = make(options, size, kind, tf32)
            check(ranges.gpu_ranges_push(), "gpu_ranges_push")
            torch.mm(*operands)
            if options.device == "cuda":
                torch.cuda.synchronize()
            check(ranges.gpu_ranges_pop(), "gpu_ranges_pop")
        check(ranges.gpu_ranges_end(path.encode()), "gpu_ranges_end")
        with open(path, encoding="utf-8", newline="") as file:
            rows = [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
        print(json.dumps({"metrics": config.split(","), "products": [
            {"what": name, "operations": 2.0 * size**3, "values": values}
            for (name, _, _), values in zip(products, rows)]}), flush=True)


def make(options, size, kind, tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    return [torch.ones(size, size, device=options.device, dtype=kind) for _ in range(2)]


def multiply(options, size, kind, tf32):
    torch.mm(*make(options, size, kind, tf32))
    if options.device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
