"""Part f: the CUDA workloads on this GPU, beside the software GPU's model of one."""
import json
import math
import os
import re
import time

import compare
import session
from machine import HERE

# Options and iterations of each workload; the software GPU runs the same. Few lengths of each model
# are enough for the kernels, and boundaries need some hundred iterations.
RUNS = {
    "gnmt": (["--model", "gnmt"], 400),
    "ds2": (["--model", "ds2"], 300),
    "transformer": (["--model", "transformer"], 400),
    "fixed": (["--model", "fixed"], 300),
    "transformer_graphs": (["--model", "transformer", "--graphs", "--pad-multiple", "16"], 400),
    "gnmt_nvtx_free_prefetch": (["--model", "gnmt", "--prefetch", "--readback", "never"], 400),
}


def function_name(name):
    """The function's own name, of a mangled (_ZN1a1b7softmaxILi128EEvPf) or a written-out one."""
    if name.startswith("_Z"):
        rest, own = name[3:] if name.startswith("_ZN") else name[2:], name
        while (size := re.match(r"\d+", rest)) is not None:
            end = size.end() + int(size.group())
            own, rest = rest[size.end():end], rest[end:]
        return own
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.sub(r"\(.*|<.*", "", name).split("::")[-1].split(" ")[-1]


def kernel_class(name):
    """gemm_tf32_64x64_nn -> gemm_tf32; a::b::softmax_forward<128>(float*) -> softmax_forward."""
    return re.sub(r"(_\d+x\d+\w*|_(nn|nt|tn|tt)|_split\w*)+$", "", function_name(name))


def by_class(kernels):
    """{class: (launches, ns of one launch)} of {name: (launches, ns in total)}."""
    sums = {}
    for name, (launches, ns) in kernels.items():
        one = sums.setdefault(kernel_class(name), [0.0, 0.0])
        one[0] += launches
        one[1] += ns
    return {name: (launches, ns / launches) for name, (launches, ns) in sums.items() if launches > 0.5}


def model_error(real, model):
    """Rows of [class, launches, ns here, ns by the model, model / here], and totals. Classes that one
    side lacks are named."""
    here, there = by_class(real), by_class(model)
    rows = [[name, round(here[name][0]), here[name][1], there[name][1], there[name][1] / here[name][1]]
            for name in sorted(here, key=lambda n: -here[n][0] * here[n][1]) if name in there]
    total_here = sum(row[1] * row[2] for row in rows)
    return {"classes": rows, "total_ratio": sum(row[1] * row[3] for row in rows) / total_here if total_here else None,
            "only_here": sorted(set(here) - set(there)), "only_model": sorted(set(there) - set(here))}


def truth_of(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    totals = next(line for line in lines if line["kind"] == "totals")
    kernels = {name: (k["launches"], k["kernel_time_ns"]) for name, k in totals.get("training_kernels", {}).items()}
    return totals, kernels


def traced_kernels(machine, name, command, count, env):
    """{name: (launches, ns)} of a run in which the plan may trace as often as it likes."""
    with session.Session(machine, f"traced-{name}") as watched:
        watched.start(command, ["--iterations", str(count), "--overhead-budget", "90%"], extra=env)
        watched.wait()
        time.sleep(0.3)
        kernels = watched.ask("kernels", watched.name, "--all", check=False).get("kernels", [])
    # A number that is none stands in quotes.
    sums = {k["name"]: (float(k["launches"]), float(k["duration_ns"]["value"])) for k in kernels}
    return {name: pair for name, pair in sums.items() if all(math.isfinite(value) for value in pair)}


def workload(machine, name):
    options, count = RUNS[name]
    count = count // 4 if machine.software else count
    program = machine.program("seqpoint_workload")
    command = [program, *options, "--max-iterations", str(count), "--quiet"]
    # Tried without a GPU: another GPU of the software kind stands for the real one.
    real_env, model_env = {}, {"SWGPU_SET": "clock.speed_cap=0", "SWGPU_SEED": "7"}
    if machine.software:
        config = next(path for path in (os.path.join(machine.cuda_folders()[0], "config", "a100.ini"),
                                        os.path.join(HERE, "..", "softgpu", "config", "a100.ini"))
                      if os.path.exists(path))
        real_env = {"SWGPU_CONFIG": config, "SWGPU_SET": "clock.speed_cap=4"}
    with session.Session(machine, f"workload-{name}") as watched:
        truth = os.path.join(watched.folder, "truth.jsonl")
        watched.start([*command, "--truth", truth], ["--iterations", str(count), "--overhead-budget", "10%"],
                      extra=real_env)
        asked = {}
        for fraction in (0.05, 0.25):
            if watched.until(lambda job, f=fraction: job["iterations"] >= f * count, pause=0.05) is None:
                break
            asked[fraction] = watched.project()
        watched.wait()
        time.sleep(0.3)
        asked[1.0] = watched.project()
        found = watched.ask("iterations", watched.name, "--all", check=False).get("iterations", [])
        job = watched.job()
    if machine.software:
        real_env["SWGPU_SET"] = "clock.speed_cap=0.5"  # or it is through before a plan is made
    kernels = traced_kernels(machine, name, command, count, real_env)
    model_truth = os.path.join(machine.work, f"model-{name}.jsonl")
    softgpu = os.path.join(machine.bundle, "softgpu")
    machine.run([*command, "--truth", model_truth], limit=40,
                env={**os.environ, "LD_LIBRARY_PATH": softgpu, **model_env})
    totals, _ = truth_of(truth)
    model_totals, model_kernels = truth_of(model_truth)
    os.remove(model_truth)
    result = compare.compare(compare.read_truth(truth), found, asked)
    # Lengths of the rest are not told here: early answers are of a run whose lengths are like the past.
    left_out = ("boundary between opt", "between opt") + (("found length",) if name == "fixed" else ())
    rows = [row for row in compare.judge(result) if not row[0].startswith(left_out)]
    error = model_error(kernels, model_kernels)
    step_ratio = model_totals["train_gpu_time_ns"] / totals["train_gpu_time_ns"]
    return {"summary": [f"{result['boundaries']['true']} iterations; the model's GPU time of training is "
                        f"{step_ratio:.3f} of what it is here" +
                        (f"; its kernels' {error['total_ratio']:.3f}" if error["total_ratio"] else
                         "; no kernel was traced: " + ("inside graphs they are not seen" if "graphs" in name else
                                                       "the run ended before a plan was made")),
                        job.get("error") or "no error reported"] +
                       ([f"kernels seen on one side only: here {error['only_here']}, model {error['only_model']}"]
                        if error["classes"] and (error["only_here"] or error["only_model"]) else []),
            "tables": [{"columns": ["figure", "measured", "to reach", "met"], "rows": [list(row) for row in rows]},
                       {"columns": ["kernel class", "launches", "ns here", "ns by the model", "model / here"],
                        "rows": error["classes"]}],
            "comparison": result, "kernels": kernels, "model_kernels": model_kernels, "time_ratio": step_ratio,
            "job": job}


STEPS = [(name, 60, lambda machine, n=name: workload(machine, n)) for name in RUNS]
