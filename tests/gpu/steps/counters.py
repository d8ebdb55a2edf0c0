"""Part c: counters projected from the SeqPoints, against counters of every iteration, and against ncu."""
import csv
import io
import json
import os
import sys
import time

import session
from machine import HERE, Skipped, StepFailed
from steps.questions import metric_set, operations_of
from steps.workloads import truth_of

sys.path.insert(0, os.path.join(HERE, "torch"))
import lengths as corpora  # noqa: E402

# One pass together on GH100 and GA100.
METRICS = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "sm__inst_executed.sum",
           "sm__pipe_tensor_cycles_active.sum", "sm__cycles_active.sum"]
# Follow time, so they differ as two runs differ; the others count work.
NOT_JUDGED = ("gpu__time_duration.sum", "sm__cycles_active.sum")
GOAL = 0.01


def read_counters(path):
    """{metric: [a value per iteration]}"""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {metric: [float(row[metric]) for row in rows] for metric in rows[0]}


def lay_beside(projected, every):
    """Rows of [metric, projected, half width, true sum, error, covers, met] for metrics that both have.

    `projected`: the reply of `seqpoint counters --json`; `every`: {metric: values of all iterations}."""
    rows = []
    for counter in projected.get("counters", []):
        metric = counter["metric"]
        total = counter.get("projection", {}).get("total")
        if metric not in every or total is None or counter.get("ratio"):
            continue
        truth = sum(every[metric])
        if truth == 0:
            continue
        error = total["value"] / truth - 1
        met = None if metric in NOT_JUDGED else abs(error) <= GOAL
        rows.append([metric, total["value"], f"±{(total['high'] - total['low']) / 2 / total['value'] * 100:.2f} %"
                     if total["value"] else "-", truth, f"{error * 100:+.3f} %",
                     total["low"] <= truth <= total["high"], met])
    return rows


COLUMNS = ["metric", "projected", "interval", "sum over every iteration", "error", "covers", "within 1 %"]


def training(machine, model, batch):
    """The same epoch twice: watched, and with a counter range around every iteration."""
    machine.need_torch()
    if machine.software:
        raise Skipped("without a GPU PyTorch makes no CUDA calls: there are no counters")
    corpus = {"gnmt": "multi30k", "transformer": "alpaca"}[model]
    count = 500
    folder = machine.folder(f"counters-{model}")
    lengths = os.path.join(folder, "lengths.csv")
    corpora.write_lengths(lengths, corpora.draw_lengths(corpus, count * batch, 3))
    arguments = ["--lengths", lengths, "--batch", str(batch)]
    with session.Session(machine, f"counters-{model}-watched") as watched:
        watched.train(f"{model}.py", arguments,
                      ["--lengths", lengths, "--batch", str(batch), "--drop-last", "--overhead-budget", "20%"], limit=60)
        time.sleep(0.5)
        projected = watched.ask("counters", watched.name, "--confidence", "0.95")
        job = watched.job()
    path = os.path.join(folder, "every.csv")
    machine.run([machine.python, machine.torch_script(f"{model}.py"), *session.device(machine), *arguments,
                 "--counters", path, "--counter-library", os.path.join(machine.bundle, "lib", "libseqpoint_gpu_ranges.so"),
                 "--metrics", ",".join(METRICS)], env=machine.environment(cuda=False), limit=90)
    every = read_counters(path)
    rows = lay_beside(projected, every)
    if not rows:
        raise StepFailed(f"no counter was projected; {job.get('error') or ''} {projected.get('message', '')}")
    missed = [row[0] for row in rows if row[6] is False]
    return {"summary": [f"{len(every[METRICS[0]])} iterations; measured {(job.get('seqpoints') or {}).get('measurements')}",
                        "every counter within 1 %" if not missed else "beyond 1 %: " + ", ".join(missed)],
            "tables": [{"columns": COLUMNS, "rows": rows}], "projected": projected, "job": job}


def workload(machine):
    """The CUDA workload on the software GPU, whose sums are exact. On a GPU nobody counts them."""
    if not machine.software:
        raise Skipped("the workload's truth file has counters on the software GPU only")
    with session.Session(machine, "counters-workload") as watched:
        truth = os.path.join(watched.folder, "truth.jsonl")
        watched.start([machine.program("seqpoint_workload"), "--model", "gnmt", "--hidden", "64", "--layers", "2",
                       "--vocabulary", "256", "--batch", "8", "--max-iterations", "400", "--quiet", "--truth", truth],
                      ["--iterations", "400", "--overhead-budget", "20%"], extra={"SWGPU_SET": "clock.speed_cap=1"})
        watched.wait()
        time.sleep(0.3)
        projected = watched.ask("counters", watched.name)
    names = {"dram_read_bytes": "dram__bytes_read.sum", "dram_write_bytes": "dram__bytes_write.sum",
             "instructions": "sm__inst_executed.sum", "tensor_cycles": "sm__pipe_tensor_cycles_active.sum"}
    with open(truth, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    every = {metric: [line["counters"][key] for line in lines if line["kind"] == "iteration"]
             for key, metric in names.items()}
    rows = lay_beside(projected, every)
    return {"summary": [f"{len(every['sm__inst_executed.sum'])} iterations"],
            "tables": [{"columns": COLUMNS, "rows": rows}], "totals": truth_of(truth)[0]["iterations"]}


KNOWN = ("probe_copy", "probe_multiply_add")


def read_ncu(text):
    """[{metric: value, "kernel": name}] of `ncu --csv --page raw --print-units base`."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise StepFailed(f"ncu wrote no table; its output ends with:\n{text[-1500:].strip()}")
    rows = []
    for row in csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"')))):
        if not row["ID"]:
            continue  # the line of units
        one = {"kernel": next((name for name in KNOWN if name in row["Kernel Name"]), row["Kernel Name"])}
        for metric in METRICS:
            if row.get(metric):
                one[metric] = float(row[metric].replace(",", ""))
        rows.append(one)
    return rows


def ncu(machine):
    """Kernels whose work is known: by hand, by ncu, by an auto range of CUPTI."""
    ours = machine.probe("known_measured")
    table = []
    theirs = []
    tool = machine.ncu()
    if not machine.software and tool:
        metrics = [m for m in METRICS if m != "sm__pipe_tensor_cycles_active.sum"]
        out = machine.run([tool, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                           "--cache-control", "none", "--metrics", ",".join(metrics),
                           machine.program("seqpoint_gpu_probe"), "known"], limit=60, log="ncu.csv")
        theirs = read_ncu(out.text)
    expected = {("probe_copy", "dram__bytes_read.sum"): ours["expected"]["probe_copy_read_bytes"],
                ("probe_copy", "dram__bytes_write.sum"): ours["expected"]["probe_copy_write_bytes"]}
    worst = 0.0
    for kernel in KNOWN:
        mine = [k for k in ours["kernels"] if k["kernel"] == kernel][1:]  # the first is cold
        other = [k for k in theirs if k["kernel"] == kernel][1:]
        for metric in METRICS:
            a = [k[metric] for k in mine if metric in k]
            b = [k[metric] for k in other if metric in k]
            if not a:
                continue
            a = sum(a) / len(a)
            b = sum(b) / len(b) if b else None
            if b and metric == "sm__inst_executed.sum":
                worst = max(worst, abs(a / b - 1))
            table.append([kernel, metric, a, b, f"{(a / b - 1) * 100:+.2f} %" if b else None,
                          expected.get((kernel, metric))])
    return {"summary": [f"instructions of single kernels differ from ncu's by {worst * 100:.3f} % at most" if theirs else
                        "ncu is not here: only CUPTI's values and those by hand"],
            "tables": [{"columns": ["kernel", "metric", "CUPTI range", "ncu", "difference", "by hand"], "rows": table}],
            "raw": {"cupti": ours, "ncu": theirs}}


def roofline(machine):
    """`run --roofline` over a training whose kernels' work is known by hand."""
    # A few seconds: a rule and a plan are made, and the library measures nothing in the first second.
    count = 2400 if machine.software else 6000
    with session.Session(machine, "roofline") as watched:
        # Of a minute, much goes into measuring: 24 iterations, kernel by kernel.
        watched.start([machine.program("seqpoint_gpu_probe"), "known_training", str(count)],
                      ["--roofline", "--iterations", str(count), "--overhead-budget", "90%"],
                      extra={"SWGPU_SET": "clock.speed_cap=1"} if machine.software else None)
        known = watched.wait().last_json()
        time.sleep(0.5)
        found = watched.ask("roofline", watched.name, "--all")
        job = watched.job()
    # Lengths in bytes of the batch, or divided by what they have in common.
    unit = known["bytes_of_batch_of_length"]
    whole = [float(length["lengths"][0]) for length in found.get("lengths", [])
             if length.get("measured_iterations") == length["wanted_iterations"]]
    lengths = sum(value / unit if value >= unit else value for value in whole)
    rows, off = [], []
    for expected in known["kernels"]:
        kernel = next((k for k in found.get("kernels", []) if expected["kernel"] in k["name"]), None)
        if kernel is None or not kernel.get("complete"):
            rows.append([expected["kernel"]] + [None] * 7 + [(kernel or {}).get("message", "not found")])
            off.append(f"{expected['kernel']} has no position")
            continue
        ratio = {}
        for what in ("operations", "bytes"):
            true = expected.get(f"{what}_of_length", 0) * lengths
            ratio[what] = kernel[what] / true if true else None
            # What the L2 still holds to be written is written in the next kernel's time.
            if true and abs(ratio[what] - 1) > (0.02 if what == "operations" else 0.1):
                off.append(f"{what} of {expected['kernel']} {ratio[what]:.4g} of those by hand")
        share = kernel.get("roof_share")
        if share is not None and share > 1.02:
            off.append(f"{expected['kernel']} is {share:.2f} of its roof")
        rows.append([expected["kernel"], kernel["launches"], kernel["duration_ns"], ratio["operations"], ratio["bytes"],
                     kernel.get("compute_share"), kernel.get("memory_share"), kernel.get("bound"), kernel.get("message")])
    if not whole:
        raise StepFailed(f"no length was measured with every configuration: {found.get('message', '')} "
                         f"{job.get('error') or ''}")
    return {"summary": [f"{len(whole)} lengths measured with every configuration; "
                        f"{found.get('message') or job.get('error') or 'no error reported'}",
                        "operations and bytes are those by hand, and nothing is above its roof" if not off else
                        "off: " + "; ".join(off),
                        "roofs: " + ", ".join(f"{roof['name']} {roof['per_s']:.4g} {roof['unit']}"
                                              for roof in found.get("roofs", []))],
            "tables": [{"columns": ["kernel", "launches", "ns", "operations / by hand", "bytes / by hand", "of the arithmetic roof",
                                    "of the memory roof", "bound", "message"], "rows": rows}],
            "known": known, "found": found, "job": job}


def lay_out_products(lines, operations_of):
    """Rows of [product, operations by hand, counted, counted / by hand, counted by], and what is off."""
    products = {}
    for line in lines:
        for one in line["products"]:
            product = products.setdefault(one["what"], {"operations": one["operations"], "counted": 0.0, "by": []})
            product["counted"] += operations_of(line["metrics"], one["values"])
            product["by"] += [metric for metric, value in zip(line["metrics"], one["values"])
                              if operations_of([metric], [value]) > 0.01 * one["operations"]]
    rows = [[name, p["operations"], p["counted"], p["counted"] / p["operations"], "; ".join(p["by"]) or "nothing"]
            for name, p in products.items()]
    return rows, [f"{row[0]} {row[3]:.4g}" for row in rows if abs(row[3] - 1) > 0.01]


def torch_flops(machine):
    """PyTorch's matrix products, counted by the set "flops": operations known by hand."""
    machine.need_torch()
    if machine.software:
        raise Skipped("without a GPU PyTorch makes no CUDA calls: there are no counters")
    chip = machine.probe("environment")["chip"]
    configs = metric_set(machine, "flops", chip)
    out = machine.run([machine.python, machine.torch_script("flops.py"), *session.device(machine), "--ranges",
                       os.path.join(machine.bundle, "lib", "libseqpoint_gpu_ranges.so"), "--configs",
                       ":".join(",".join(config) for config in configs)],
                      env=machine.environment(cuda=False), check=False)
    lines = [json.loads(line) for line in out.text.splitlines() if line.startswith('{"metrics"')]
    if not lines:
        raise StepFailed(f"no configuration was collected; the output ends with:\n{out.text[-1500:].strip()}")
    rows, off = lay_out_products(lines, operations_of)
    summary = ["operations counted are those of the products" if not off else
               "operations counted are other shares of the true ones: " + ", ".join(off)]
    if len(lines) < len(configs):
        summary.append(f"only {len(lines)} of {len(configs)} configurations: {out.text.strip().splitlines()[-1]}")
    return {"summary": summary, "raw": lines,
            "tables": [{"columns": ["product", "operations by hand", "counted", "counted / by hand", "counted by"],
                        "rows": rows}]}


STEPS = [("gnmt", 150, lambda machine: training(machine, "gnmt", 128)),
         ("transformer", 150, lambda machine: training(machine, "transformer", 64)),
         ("workload", 60, workload), ("roofline", 60, roofline), ("torch_flops", 90, torch_flops),
         ("ncu", 90, ncu)]
