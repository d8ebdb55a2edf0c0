"""Part d: what being profiled costs, beside torch.profiler (Kineto), interleaved.

One process per rung, all started at once and warmed up; then each is told to run a block while the
others wait, round after round, so that clocks and neighbours hit all alike."""
import json
import os
import random
import statistics

import session
from machine import Skipped, StepFailed
from steps.experiments import soak
from steps.rungs import WINDOW, Rung

# rung -> (watched, what the job is told once it is warm, what each block is told). "idle" is the
# library in the process, told to do nothing; "auto" what a user gets. Counters one iteration after
# the other are in the benchmark of CUDA programs. What CUPTI leaves behind after windows shows in the
# two rungs that had some (pytorch#144455: trainings that stay slower after profiling has ended).
RUNGS = {
    "not loaded": (False, [], "block"),
    "torch.profiler": (False, [], "kineto"),
    "idle": (True, [], "block"),
    "mark": (True, [["level", "mark"]], "block"),
    "mark after three windows": (True, [["level", "mark"]] + 3 * WINDOW, "block"),
    "trace": (True, [["level", "trace"]], "block"),
    "auto": (True, [["level", "auto"]], "block"),
    "released": (True, [["release"]], "block"),
    "released after three windows": (True, [["level", "mark"]] + 3 * WINDOW + [["release"]], "block"),
}
NEED_A_GPU = ("trace", "mark after three windows", "released after three windows")
# To reach, as shares of an iteration: docs/measurements/README.md.
GOALS = {("compute", "mark"): 0.001, ("launches", "mark"): 0.01, ("launches", "released"): 0.002,
         ("compute", "released"): 0.002, ("graph", "released"): 0.002}
GOALS.update({(job, f"{rung} after three windows"): goal for (job, rung), goal in GOALS.items()})


def ladder(machine, job, names=tuple(RUNGS), rounds=10):
    facts = machine.need_torch()
    if machine.software and job == "graph":
        raise Skipped("CUDA graphs need a GPU")
    if machine.software:
        # The adapter finds iterations without a GPU; there is nothing to trace.
        names, rounds = [n for n in names if n not in NEED_A_GPU], 3
    command = [machine.python, machine.torch_script("overhead.py"), *session.device(machine), "--job", job]
    rungs, skipped = [], {}
    try:
        for name in names:
            rungs.append(Rung(machine, job, name, RUNGS[name], command, cuda=False,
                              extra={"SEQPOINT_DISABLE": "1"} if name == "idle" else None))
        def without(rung, reason):  # the others go on
            skipped[rung.name] = str(reason)
            rung.close()
            rungs.remove(rung)
        for rung in list(rungs):
            try:
                rung.line()
            except StepFailed as reason:
                without(rung, reason)
        for rung in list(rungs):
            try:
                rung.prepare()
            except (Skipped, StepFailed) as reason:
                without(rung, reason)
        if "not loaded" not in (rung.name for rung in rungs):
            raise StepFailed(f"the job does not run without us: {skipped.get('not loaded')}")
        base = next(rung for rung in rungs if rung.name == "not loaded")
        one = base.block(20)["ms"]
        count = int(max(10, min(4000, (50 if machine.software else 400) / one)))  # milliseconds of a block
        # What torch.profiler recorded it works off after each block, for longer than the block itself.
        counts = {rung.name: max(5, count // 10) if rung.verb == "kineto" else count for rung in rungs}
        times = {rung.name: [] for rung in rungs}
        for _ in range(rounds):
            if machine.left() < 15:
                break
            for rung in random.sample(rungs, len(rungs)):
                try:
                    times[rung.name].append(rung.block(counts[rung.name]))
                except (StepFailed, OSError) as reason:
                    if rung.name == "not loaded":
                        raise
                    without(rung, reason)
                    times.pop(rung.name)
    finally:
        for rung in rungs:
            rung.close()
    rows, raw = [], {}
    base_ms = [t["ms"] for t in times["not loaded"]]
    for name, blocks in times.items():
        # Pairs of one round: drift of the clocks is in both.
        more = sorted(b["ms"] / a - 1 for a, b in zip(base_ms, blocks))
        low, high = more[int(0.1 * (len(more) - 1))], more[int(0.9 * (len(more) - 1))]
        median = statistics.median(more)
        goal = GOALS.get((job, name))
        raw[name] = {"ms": [b["ms"] for b in blocks], "host_ms": [b["host_ms"] for b in blocks], "more": median}
        rows.append([name, statistics.median(b["ms"] for b in blocks), statistics.median(b["host_ms"] for b in blocks),
                     f"{median * 100:+.3f} %", f"{low * 100:+.3f} to {high * 100:+.3f} %",
                     f"≤ {goal * 100:.1f} %" if goal else "-", median <= goal if goal else None])
    summary = [f"{job}: blocks of {count} iterations, {len(base_ms)} rounds, PyTorch {facts['version']}"]
    if "trace" in raw and "torch.profiler" in raw and raw["torch.profiler"]["more"] > 0:
        summary.append(f"trace costs {raw['trace']['more'] / raw['torch.profiler']['more']:.2f} of what torch.profiler "
                       "costs (to reach: 0.5)")
    for rung in ("mark", "released"):
        after = raw.get(f"{rung} after three windows")
        if after and rung in raw:
            summary.append(f"{rung}: {raw[rung]['more'] * 100:+.3f} % in a process that never had a window of kernel records, "
                           f"{after['more'] * 100:+.3f} % after three: the difference is what CUPTI leaves behind")
    summary += [f"left out: {name}: {reason}" for name, reason in skipped.items()]
    return {"summary": summary, "raw": raw,
            "tables": [{"columns": ["rung", "ms an iteration", "ms of its calls", "more than not loaded (median)",
                                    "80 % of rounds", "to reach", "met"], "rows": rows}]}


def torch_adapter(machine, rounds=3):
    """Question 27: a training of much Python alone, under us without the adapter, and with it: processes in turns."""
    machine.need_torch()
    command = [machine.python, machine.torch_script("adapter.py"), *session.device(machine)]
    kinds = {"not loaded": None, "without the adapter": session.WITHOUT_ADAPTER, "with it": {}}
    answers = {name: [] for name in kinds}
    for index in range(1 if machine.software else rounds):
        for name, extra in kinds.items():
            if extra is None:
                out = machine.run(command, env=machine.environment(cuda=False))
            else:
                with session.Session(machine, f"adapter-{index}-{len(extra)}") as watched:
                    out = watched.train("adapter.py", [], extra=extra)
            answers[name].append(out.last_json())
    parts = [one["without"] for one in answers["with it"][0]["blocks"][::2]]
    rows = [[name, part] + [" ".join(f"{b['ms']:.2f}" for b in one["blocks"] if b["without"] == part) for one in some] +
            [some[-1]["blocks"][2 * parts.index(part)]["collections"]] for name, some in answers.items() for part in parts]
    first = {name: statistics.median(one["blocks"][0]["ms"] for one in some) for name, some in answers.items()}
    return {"question": 27, "raw": answers,
            "summary": [f"against the process alone: {(first[name] / first['not loaded'] - 1) * 100:+.1f} % {name}"
                        for name in list(kinds)[1:]] +
                       [f"{name}: {some[0]['facts']}" for name, some in answers.items()],
            "tables": [{"columns": ["process", "taken away, one after the other",
                                    *[f"ms, process {i + 1}" for i in range(len(answers["with it"]))],
                                    "collections of a block"], "rows": rows}]}


def cuda_benchmark(machine, arguments):
    """`./dev bench overhead`: the ladder for CUDA programs, and what the governor lets a run spend."""
    folder = machine.folder("overhead")
    json_path, text_path = os.path.join(folder, "rows.json"), os.path.join(folder, "tables.md")
    command = [machine.program("overhead_benchmark"), "--gpu", "software" if machine.software else "real", *arguments,
               "--json", json_path, "--markdown", text_path]
    nsys = machine.nsys()
    if not machine.software and nsys and "none" not in arguments:
        command += ["--beside", f"nsys={nsys} profile --trace=cuda --force-overwrite=true -o {folder}/nsys"]
    machine.run(command)
    with open(json_path, encoding="utf-8") as file:
        rows = json.load(file)
    with open(text_path, encoding="utf-8") as file:
        return {"markdown": file.read(), "raw": rows}


def cuda_ladder(machine):
    rounds = ["--rounds", "1", "--blocks", "2"] if machine.software else ["--rounds", "3"]
    return cuda_benchmark(machine, ["--no-governor", *rounds])


def cuda_governor(machine):
    return cuda_benchmark(machine, ["--jobs", "none"])


STEPS = [(f"torch_{job}", 120, lambda machine, j=job: ladder(machine, j)) for job in ("launches", "compute", "graph")]
STEPS += [("torch_adapter", 150, torch_adapter), ("cuda", 120, cuda_ladder), ("governor", 90, cuda_governor), ("soak", 560, soak)]
