"""Part a: every question of docs/gpu-questions.md, by its number."""
import concurrent.futures
import json
import os
import signal
import time

import session
from machine import StepFailed, status_text


def us(ns):
    return None if ns is None else round(ns / 1000, 2)


def answer(number, sentences, tables, raw):
    return {"question": number, "summary": sentences, "tables": tables, "raw": raw}


def spread_row(spread):
    return [us(spread["median"]), us(spread["p90"]), us(spread["min"])]


def environment(machine):
    raw = machine.probe("environment")
    return {"summary": [f"{raw['device']}, {raw['multiprocessors']} multiprocessors, driver {raw['driver']}, "
                        f"runtime {raw['runtime']}, CUPTI {raw['cupti']}; a CUPTI stamp costs "
                        f"{raw['timestamp_ns']['median']:.0f} ns"], "raw": raw}


def doctor(machine):
    """What our own tool says of this machine."""
    with session.Session(machine, "doctor") as watched:
        out = machine.run([machine.program("seqpoint"), "doctor", "--json"], limit=30, check=False,
                          env=machine.environment(watched.environment))
    findings = json.loads(out.text[out.text.index("{"):out.text.rindex("}") + 1]).get("findings", [])
    return {"summary": [f"{sum(f['kind'] == 'problem' for f in findings)} problems of {len(findings)} findings"],
            "tables": [{"columns": ["kind", "of", "finding", "what to do"],
                        "rows": [[f["kind"], f["subject"], f["sentence"], f["action"]] for f in findings]}]}


def switch(machine):
    raw = machine.probe("switch")
    cost = {(row["job"], row["what"]): row["ns"]["median"] for row in raw["costs"]}
    sentences = []
    for job in ("eager", "graph"):
        on = cost[job, "synchronise, idle"] + cost[job, "enable CONCURRENT_KERNEL"] + cost[job, "enable MEMCPY, MEMSET"]
        off = (cost[job, "synchronise, idle"] + cost[job, "flush with 200 records"] +
               cost[job, "disable CONCURRENT_KERNEL"] + cost[job, "disable MEMCPY, MEMSET"])
        more = (cost[job, "200 kernels after enabling, to their end"] -
                cost[job, "200 kernels, nothing enabled, to their end"])
        sentences.append(f"{job}: opening a window {us(on)} µs, closing it {us(off)} µs (medians, GPU idle); 200 "
                         f"kernels take {us(more)} µs more within")
    return answer(1, sentences, [{"columns": ["job", "what", "median µs", "p90 µs", "least µs"],
                                  "rows": [[r["job"], r["what"], *spread_row(r["ns"])] for r in raw["costs"]]}], raw)


def nesting(machine):
    raw = machine.probe("nesting")
    rows = [[c["call"], c["driver_nested"], c.get("same_correlation_id"), c.get("runtime_id"), c.get("driver_id")]
            for c in raw["calls"]]
    every = all(c["driver_nested"] and c.get("same_correlation_id") for c in raw["calls"])
    kernel = raw["calls"][0]
    return answer(2, [("every driver call nests under its runtime call with the same correlation id" if every else
                       "not every driver call nests with the same id: see the table") +
                      f"; a kernel's launch is runtime {kernel.get('runtime_id')}, driver {kernel.get('driver_id')}"],
                  [{"columns": ["call", "driver call nested", "same id", "runtime id", "driver id"], "rows": rows}], raw)


def copy_clock(machine):
    raw = machine.probe("copy_clock")
    cost = {row["kinds"]: row["iteration_ns"]["median"] for row in raw["cost"]}
    base = cost["nothing"]
    return answer(3, [f"MEMCPY records cost {(cost['MEMCPY'] / base - 1) * 100:+.2f} % of an iteration of {us(base)} µs "
                      f"with 40 kernels and one copy; with kernel records {(cost['MEMCPY and CONCURRENT_KERNEL'] / base - 1) * 100:+.2f} %",
                      f"period by copies against period by kernels: sum {raw['sum_difference_share'] * 100:.4f} %, worst "
                      f"single iteration {raw['worst_period_difference_share'] * 100:.3f} %"], [], raw)


def injection_order(machine):
    """Question 4: with the probe program, and with PyTorch where it is there."""
    library = os.path.join(machine.bundle, "lib", "libseqpoint_gpu_probe_inject.so")
    # Not a probe: those link CUPTI, so it would be there in any case.
    training = [machine.program("seqpoint_workload"), "--hidden", "64", "--layers", "2", "--vocabulary", "256",
                "--max-iterations", "2", "--quiet"]
    programs = {"a CUDA program": (training, machine.environment())}
    if machine.torch().get("sees_gpu") and not machine.software:
        code = "import torch; torch.cuda.init(); torch.zeros(1, device='cuda')"
        programs["python -c 'import torch; torch.cuda.init()'"] = (
            [machine.python, "-c", code], machine.environment(cuda=False))
    raw, rows, sentences = {}, [], []
    for name, (command, env) in programs.items():
        path = os.path.join(machine.work, f"inject-{len(raw)}.jsonl")
        env = dict(env, CUDA_INJECTION64_PATH=library, SEQPOINT_PROBE_OUT=path)
        machine.run(command, env=env, limit=60)
        events = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
        raw[name] = events
        kinds = [event["event"] for event in events]
        if "InitializeInjection" not in kinds:
            raise StepFailed(f"{name}: the driver did not call InitializeInjection of {library}")
        first = events[kinds.index("InitializeInjection")]
        context = next((e["detail"] for e in events if e["event"] == "cuCtxGetCurrent"), "not asked")
        later = "context created" in kinds[kinds.index("InitializeInjection"):]
        rows.append([name, first["detail"], context, later,
                     ", ".join(e["detail"] for e in events if e["event"] == "mapped")])
        sentences.append(f"{name}: at InitializeInjection there is {context}, {first['detail']}; the first context "
                         f"was {'seen after it' if later else 'not seen'}")
    return answer(4, sentences, [{"columns": ["program", "libcupti", "context", "created later", "mapped then"],
                                  "rows": rows}], raw)


def launch(machine):
    raw = machine.probe("launch", limit=90)
    rows = [[r["setting"], r["threads"], r["launch_ns"]["median"], r["launch_ns"]["min"], r["more_ns"]]
            for r in raw["settings"]]
    more = {(r["setting"], r["threads"]): r["more_ns"] for r in raw["settings"]}
    return answer(5, [f"per launch, {threads} thread{'s' if threads > 1 else ''}: " + ", ".join(
        f"{name} {more[name, threads]:+.0f} ns" for name in
        ("subscribed", "a callback that is not called", "a driver callback", "CONCURRENT_KERNEL records", "RUNTIME records"))
        for threads in (1, 4)],
        [{"columns": ["setting", "threads", "median ns", "least ns", "more than nothing, ns"], "rows": rows}], raw)


def range_cost(machine):
    raw = machine.probe("range", limit=90)
    return answer(6, [", ".join(f"{what} {'waits' if raw[what + '_drains'] else 'does not wait'} for queued work"
                                for what in ("start", "push", "pop", "stop")),
                      f"of the work of another stream {raw['share_of_other_stream_in_range'] * 100:.0f} %, of another "
                      f"thread {raw['share_of_other_thread_in_range'] * 100:.0f} % is inside",
                      f"from a launch's callback: start {raw['start_in_callback']}, push {raw['push_in_callback']}"],
                  [{"columns": ["what", "median µs", "p90 µs", "least µs"],
                    "rows": [[r["what"], *spread_row(r["ns"])] for r in raw["costs"]]}], raw)


def range_activity(machine):
    raw = machine.probe("range_activity")
    rows = [[v["metric"], v["without_records"], v["with_records"],
             f"{(v['with_records'] / v['without_records'] - 1) * 100:+.2f} %" if v["without_records"] else "-"]
            for v in raw["values"]]
    return answer(7, [f"errors: {raw['errors']}; {raw['kernel_records']} kernel records of {raw['kernel_records_expected']}"],
                  [{"columns": ["metric", "range alone", "with kernel records", "difference"], "rows": rows}], raw)


def permission(machine):
    raw = {"this user": machine.probe("permission")}
    if os.getuid() == 0 and not machine.software:
        # Bundle and work folder may lie where only root looks: then that is the answer.
        try:
            raw["another user (65534)"] = machine.probe("permission", user=65534)
        except StepFailed as reason:
            raw["another user (65534)"] = {"availability": str(reason).splitlines()[-1]}
    return answer(8, [f"{who} (uid {os.getuid() if who == 'this user' else 65534}): " +
                      ", ".join(f"{k} {v}" for k, v in values.items()) for who, values in raw.items()], [], raw)


def decode_thread(machine):
    raw = machine.probe("decode_thread")
    return answer(9, [f"on another thread, {'with the context current' if r['context_current'] else 'without a context'}: "
                      f"{r['decode']}" for r in raw["threads"]], [], raw)


def graph_range(machine):
    raw = machine.probe("graph_range")
    rows = [[v["metric"], v["eager"], v["graph"],
             f"{(v['graph'] / v['eager'] - 1) * 100:+.2f} %" if v["eager"] else "-"] for v in raw["values"]]
    return answer(10, ["the same work eagerly and as one graph, medians of 10 ranges"],
                  [{"columns": ["metric", "eager", "graph", "difference"], "rows": rows}], raw)


def passes(machine):
    raw = machine.probe("passes")
    order = [row["pass_index"] for row in raw["iterations"]]
    rows = [[v["metric"], v["in_several_passes"], v["in_one_pass"]] for v in raw.get("values", [])]
    return answer(13, [f"{raw['passes']} passes took {len(order)} iterations; pass index after each: {order}; decoding "
                       f"gave {raw['decode']}"],
                  [{"columns": ["metric", "in several passes", "in one pass"], "rows": rows}], raw)


def sampling(machine):
    raw = machine.probe("sampling", limit=90)
    rows, shortest = [], None
    for r in raw["intervals"]:
        if r.get("samples"):
            whole = not r["overflow"] and abs(r["width_ns"]["median"] / r["interval_ns"] - 1) < 0.1
            shortest = r["interval_ns"] if whole else shortest
            rows.append([us(r["interval_ns"]), us(r["start_ns"]), us(r["stop_ns"]), r["samples"],
                         us(r["width_ns"]["median"]), us(r["first_sample_width_ns"]), r["overflow"],
                         r["decode_ns_per_sample"], us(r["first_sample_minus_record_start_ns"].get("median")),
                         us(r["last_sample_minus_record_end_ns"].get("median")), r["share_of_instructions_near_bursts"]])
        else:
            rows.append([us(r["interval_ns"]), r.get("start", r["set_config"])] + [None] * 9)
    return answer(14, [f"shortest interval that was kept: {us(shortest)} µs"],
                  [{"columns": ["interval µs", "start µs", "stop µs", "samples", "width µs", "first one's", "overflow", "decode ns per sample",
                                "first sample - record start, µs", "last sample - record end, µs",
                                "share of work near records"], "rows": rows}], raw)


def graph_records(machine):
    raw = machine.probe("graph_records")
    rows = [[c["enabled"], c["kernel_records_per_launch"], c["graph_records_per_launch"],
             us(c["launch_ns"]["median"]), us(c["launch_to_end_ns"]["median"])] for c in raw["cases"]]
    late = next(c for c in raw["cases"] if c["enabled"] == "kernel, at launch alone")
    seen = late["kernel_records_per_launch"] > 0
    return answer(15, ["kernels of a graph leave records when the kind is enabled " +
                       ("only at its launch, too" if seen else "before it is instantiated, and not otherwise")],
                  [{"columns": [f"enabled ({raw['nodes']} nodes)", "kernel records", "graph records", "launch µs",
                                "launch to end µs"], "rows": rows}], raw)


def metric_set(machine, name, chip):
    """[[metric, ...], ...]: the configurations of a shipped set, as the range backend has them."""
    out = machine.run([machine.program("seqpoint"), "metrics", name, "--chip", chip, "--json"], limit=30)
    backends = json.loads(out.text[out.text.index("{"):])["sets"][0]["backends"]
    configs = next(b for b in backends if b["backend"] == "range")["configurations"]
    return [[metric["name"] for metric in config["metrics"]] for config in configs]


def operations_of(metrics, values):
    """As the set "flops" adds them up: a fused multiply-add is two, an FP16 instruction is one of a pair, tensor counts
    are operations."""
    return sum((2 if "fma_pred" in metric else 1) * (2 if "_executed_op_h" in metric else 1) * value
               for metric, value in zip(metrics, values)
               if "_executed_op_" in metric or "__ops_path_tensor_" in metric)


def opcodes(machine):
    """Each configuration in a process of its own: what refuses one says nothing of the others."""
    chip = machine.probe("environment")["chip"]
    raw, refused, kernels = [], [], {}
    for metrics in metric_set(machine, "flops", chip):
        try:
            one = machine.probe("opcodes", *metrics, limit=40)
        except StepFailed as reason:
            refused.append(f"{metrics[-1]} and {len(metrics) - 1} more: {str(reason).splitlines()[-1]}")
            continue
        raw.append(one)
        for row in one["kernels"]:
            kernel = kernels.setdefault(row["kernel"], {"what": row["what"], "operations": row["operations"],
                                                        "instructions": row["instructions"], "counted": 0.0, "by": [],
                                                        "slower": []})
            kernel["slower"].append(row["counted_ns"] / row["alone_ns"] if row["alone_ns"] else None)
            if "values" not in row:
                refused.append(f"{row['kernel']} by {metrics[-1]}: {row['result']}")
                continue
            kernel["counted"] += operations_of(metrics, row["values"])
            # What is not the kernel's own arithmetic is far below a hundredth.
            kernel["by"] += [f"{metric} {value / row['instructions']:.4g} of its instructions"
                             for metric, value in zip(metrics, row["values"])
                             if metric != "gpu__time_duration.sum" and value > 0.01 * row["instructions"]]
    if not raw:
        raise StepFailed("no configuration could be measured: " + "; ".join(refused))
    rows = [[name, k["what"], k["operations"], k["counted"], k["counted"] / k["operations"], "; ".join(k["by"]) or "nothing",
             max(filter(None, k["slower"]), default=None)] for name, k in kernels.items()]
    wrong = [f"{row[1]} {row[4]:.4g}" for row in rows if abs(row[4] - 1) > 0.01]
    beside = [one["beside_copy_records"] for one in raw]
    return answer(16, [f"{len(raw)} of {len(raw) + len({r for r in refused if ' more: ' in r})} configurations of {chip} "
                       f"were collected, with {max(one['passes'] for one in raw)} pass at most",
                       "operations counted are those of the kernels" if not wrong else
                       "operations counted are other shares of the true ones: " + ", ".join(wrong),
                       "beside copy records: " + ("all were collected, and every copy left its record"
                                                  if all(b["result"] == "0" and b["records"] == 1 for b in beside) else
                                                  "; ".join(f"enable {b['enable']}, range {b['result']}, {b['records']} "
                                                            "of 1 record" for b in beside))] +
                  ([f"refused: {'; '.join(refused)}"] if refused else []),
                  [{"columns": ["kernel", "arithmetic", "operations by hand", "counted", "counted / by hand", "counted by",
                                "time in the range / alone, most"], "rows": rows}], raw)


def kernel_ranges(machine):
    raw = machine.probe("kernel_ranges")
    rows = [[c["what"], c["launches"], c["ranges"], c["dropped"], c["in_order"], c["result"]] for c in raw["cases"]]
    rows.append([f"a graph of {raw['graph']['nodes']} kernels", 1, raw["graph"]["ranges"], None, None, raw["graph"]["result"]])
    rows += [[f"room for {r['room']}", r["launches"], r["ranges"], r["dropped"], None, r["result"]] for r in raw["rooms"]]
    other = [c["what"] for c in raw["cases"] if c["ranges"] != c["launches"]]
    mixed = [c["what"] for c in raw["cases"] if c["ranges"] == c["launches"] and not c["in_order"]]
    return answer(17, ["every launch is a range, and nothing else is" if not other else
                       "not one range for each launch: " + ", ".join(other),
                       "ranges come in the order of the launches" if not mixed else
                       "not in the order of the launches: " + ", ".join(mixed),
                       f"an empty kernel takes {us(raw['launch_in_range_ns'])} µs instead of {us(raw['launch_alone_ns'])}"],
                  [{"columns": ["between the launches", "launches", "ranges", "dropped", "in order", "result"],
                    "rows": rows}], raw)


# --- questions that need whole programs ------------------------------------------------------------

def exits(machine):
    """Question 11: a real training, ended in every way, with and without us."""
    machine.need_torch()
    ways = {"normal": 0, "exception": 1, "sys_exit": 7, "os_exit": 9, "sigterm": -signal.SIGTERM,
            "sigkill": -signal.SIGKILL, "workers": 0}

    def end_in(way):
        with session.Session(machine, f"exit-{way}") as watched:
            out = watched.train("exits.py", ["--way", way], limit=50, check=False)
            time.sleep(0.3)
            return {"way": way, "status": out.status, "expected": ways[way], "job": watched.job()}
    with concurrent.futures.ThreadPoolExecutor(2 if machine.software else len(ways)) as pool:
        raw = list(pool.map(end_in, ways))
    rows = [[r["way"], status_text(r["status"]), status_text(r["expected"]), r["job"].get("state"),
             r["job"].get("iterations"), r["job"].get("live_processes")] for r in raw]
    # `seqpoint run` ends as its command did, by the same signal.
    wrong = [r["way"] for r in raw if r["status"] != r["expected"]]
    return answer(11, ["every way ends with the status that it has without us" if not wrong else
                       f"other status than without us: {', '.join(wrong)}"],
                  [{"columns": ["way", "status", "without us", "job", "iterations", "processes left"], "rows": rows}], raw)


def torch_profiler(machine):
    """Question 12: the user's own torch.profiler while we are loaded."""
    machine.need_torch()
    alone = machine.run([machine.python, machine.torch_script("own_profiler.py"), *session.device(machine)],
                        env=machine.environment(cuda=False), limit=60).last_json()
    with session.Session(machine, "own-profiler") as watched:
        beside = watched.train("own_profiler.py", [], limit=60).last_json()
        job = watched.job()
    raw = {"alone": alone, "beside": beside, "job": job}
    same = all(alone[what] == beside[what] for what in ("kernels", "operators"))
    return answer(12, [f"in the user's trace: {alone['kernels']} GPU events and {alone['operators']} matrix products alone, "
                       f"{beside['kernels']} and {beside['operators']} with us loaded: "
                       f"{'complete' if same else 'NOT complete'}",
                       f"our job: {job.get('iterations')} iterations found of {beside['iterations']}; "
                       f"{job.get('trouble') or 'no trouble reported'}"], [], raw)


STEPS = [
    ("environment", 30, environment), ("doctor", 30, doctor), ("switch", 60, switch), ("nesting", 30, nesting),
    ("copy_clock", 60, copy_clock), ("injection_order", 60, injection_order), ("launch", 90, launch),
    ("range", 90, range_cost), ("range_activity", 60, range_activity), ("permission", 40, permission),
    ("decode_thread", 30, decode_thread), ("graph_range", 30, graph_range), ("passes", 40, passes),
    ("sampling", 60, sampling), ("graph_records", 40, graph_records),
    ("opcodes", 90, opcodes), ("kernel_ranges", 60, kernel_ranges), ("exits", 120, exits),
    ("torch_profiler", 90, torch_profiler),
]
