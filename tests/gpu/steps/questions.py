"""Part a: every question of docs/gpu-questions.md, by its number."""
import concurrent.futures
import json
import selectors
import signal
import subprocess
import time

import session
from machine import StepFailed, status_text
from steps import experiments
from steps.experiments import counters_for, refusal


def us(ns):
    return None if ns is None else round(ns / 1000, 2)


def answer(number, messages, tables, raw):
    return {"question": number, "summary": messages, "tables": tables, "raw": raw}


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
                        "rows": [[f["kind"], f["subject"], f["message"], f["action"]] for f in findings]}]}


def switch(machine):
    raw = machine.probe("switch")
    cost = {(row["job"], row["what"]): row["ns"]["median"] for row in raw["costs"]}
    messages = []
    for job in ("eager", "graph"):
        on = cost[job, "synchronise, idle"] + cost[job, "enable CONCURRENT_KERNEL"] + cost[job, "enable MEMCPY, MEMSET"]
        off = (cost[job, "synchronise, idle"] + cost[job, "flush with 200 records"] +
               cost[job, "disable CONCURRENT_KERNEL"] + cost[job, "disable MEMCPY, MEMSET"])
        more = (cost[job, "200 kernels after enabling, to their end"] -
                cost[job, "200 kernels, nothing enabled, to their end"])
        messages.append(f"{job}: opening a window {us(on)} µs, closing it {us(off)} µs (medians, GPU idle); 200 "
                         f"kernels take {us(more)} µs more within")
    return answer(1, messages, [{"columns": ["job", "what", "median µs", "p90 µs", "least µs"],
                                  "rows": [[r["job"], r["what"], *spread_row(r["ns"])] for r in raw["costs"]]}], raw)


def nesting(machine):
    raw = machine.probe("nesting")
    rows = [[c["call"], c["driver_nested"], c.get("same_correlation_id"), c.get("runtime_id"), c.get("driver_id")]
            for c in raw["calls"]]
    every = all(c["driver_nested"] and c.get("same_correlation_id") for c in raw["calls"])
    kernel = raw["calls"][0]
    other = [r["call"] for r in raw["records"] if not r["same"]]
    return answer(2, [("every driver call nests under its runtime call with the same correlation id" if every else
                       "not every driver call nests with the same id: see the table") +
                      f"; a kernel's launch is runtime {kernel.get('runtime_id')}, driver {kernel.get('driver_id')}",
                      "with driver ids alone, records carry the ids of the callbacks" if not other else
                      "with driver ids alone, records of these calls carry other ids, or there are none: " + ", ".join(other)],
                  [{"columns": ["call", "driver call nested", "same id", "runtime id", "driver id"], "rows": rows},
                   {"columns": ["driver ids alone", "driver id", "callback's id", "records", "record's id", "same"],
                    "rows": [[r["call"], r["driver_id"], r["callback_correlation"], r["records"], r["record_correlation"],
                              r["same"]] for r in raw["records"]]}], raw)


def copy_clock(machine):
    raw = machine.probe("copy_clock")
    cost = {row["kinds"]: row["iteration_ns"]["median"] for row in raw["cost"]}
    base = cost["nothing"]
    return answer(3, [f"MEMCPY records cost {(cost['MEMCPY'] / base - 1) * 100:+.2f} % of an iteration of {us(base)} µs "
                      f"with 40 kernels and one copy; with kernel records {(cost['MEMCPY and CONCURRENT_KERNEL'] / base - 1) * 100:+.2f} %",
                      f"period by copies against period by kernels: sum {raw['sum_difference_share'] * 100:.4f} %, worst "
                      f"single iteration {raw['worst_period_difference_share'] * 100:.3f} %"], [], raw)


def torch_cupti(machine):
    """Question 4: which CUPTI PyTorch brings, and whether it is there before CUDA begins."""
    machine.need_torch()
    raw = machine.run([machine.python, machine.torch_script("cupti.py"), *session.device(machine)],
                      env=machine.environment(cuda=False), limit=90).last_json()
    cupti = raw["cupti"]
    messages = [f"PyTorch {raw['torch']} for CUDA {raw['cuda']}: " +
                 (f"{cupti['file']}, version {cupti['version']}" if cupti else "no libcupti is mapped") +
                 (", mapped by its import" if raw["mapped_by_import"] else ", not mapped before CUDA begins" if cupti else "")]
    messages.append("its own libraries hold a CUPTI that is linked statically: " + ", ".join(raw["static"]) if raw["static"]
                     else "none of its own libraries holds a CUPTI that is linked statically")
    return answer(4, messages, [{"columns": ["library", "MiB", "holds a CUPTI"],
                                  "rows": [[one["file"], one["mib"], one["static"]] for one in raw["libraries"]]}], raw)


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


def state_rows(states, values):
    """[state, then median and change against the first state of each value]"""
    first = states[0]
    return [[s["state"]] + [x for v in values for x in
                            (us(s[v]["median"]), f"{(s[v]['median'] / first[v]['median'] - 1) * 100:+.2f} %")] for s in states]


def range_cost(machine):
    raw = machine.probe("range", limit=90)
    cost = {row["what"]: row["ns"]["median"] for row in raw["costs"]}
    states = {s["state"]: s for s in raw["states"]}
    rest, never = states["enabled, at rest after 30 ranges"], states["never enabled"]
    return answer(6, [", ".join(f"{what} {'waits' if raw[what + '_drains'] else 'does not wait'} for queued work"
                                for what in ("start", "push", "pop", "stop")),
                      f"enable {us(cost['enable'])} µs, disable {us(cost['disable'])} µs; at rest, a launch takes "
                      f"{(rest['launch_ns']['median'] / never['launch_ns']['median'] - 1) * 100:+.2f} %, a kernel "
                      f"{(rest['kernel_ns']['median'] / never['kernel_ns']['median'] - 1) * 100:+.2f} %",
                      f"a decode holds another thread's launch for {us(raw['longest_launch_beside_decode_ns'])} µs at most "
                      f"({us(raw['longest_launch_ns'])} µs without)",
                      f"of the work of another stream {raw['share_of_other_stream_in_range'] * 100:.0f} %, of another "
                      f"thread {raw['share_of_other_thread_in_range'] * 100:.0f} % is inside",
                      f"from a launch's callback: start {raw['start_in_callback']}, push {raw['push_in_callback']}"],
                  [{"columns": ["what", "median µs", "p90 µs", "least µs"],
                    "rows": [[r["what"], *spread_row(r["ns"])] for r in raw["costs"]]},
                   {"columns": ["range profiler", "launch µs", "change", "kernel µs", "change"],
                    "rows": state_rows(raw["states"], ("launch_ns", "kernel_ns"))}], raw)


def line_through(points):
    """(offset, slope) of the least squares line through [(x, y)]."""
    count = len(points)
    x = sum(p[0] for p in points) / count
    y = sum(p[1] for p in points) / count
    slope = sum((p[0] - x) * (p[1] - y) for p in points) / sum((p[0] - x) ** 2 for p in points)
    return y - slope * x, slope


def range_activity(machine):
    raw = machine.probe("range_activity")
    rows = [[v["metric"], v["without_records"], v["with_records"],
             f"{(v['with_records'] / v['without_records'] - 1) * 100:+.2f} %" if v["without_records"] else "-"]
            for v in raw["values"]]
    lengths = [r for r in raw["lengths"] if r["records_in_the_range_ns"]]
    messages = [f"errors: {raw['errors']}; {raw['kernel_records']} kernel records of {raw['kernel_records_expected']}"]
    if len(lengths) > 1:
        offset, slope = line_through([(r["records_in_the_range_ns"], r["range_ns"]) for r in lengths])
        messages.append(f"the time of a range is that of its kernels' records times {slope:.4f}, and {us(offset)} µs more "
                         "whatever the length: rates over the time of a range are too low by that")
    return answer(7, messages,
                  [{"columns": ["metric", "range alone", "with kernel records", "difference"], "rows": rows},
                   {"columns": ["times the work", "range µs", "first to last kernel, in the range µs", "alone µs",
                                "range longer by µs"],
                    "rows": [[r["times"], us(r["range_ns"]), us(r["records_in_the_range_ns"]), us(r["records_alone_ns"]),
                              us(r["range_ns"] - r["records_in_the_range_ns"]) if r["records_in_the_range_ns"] else None]
                             for r in raw["lengths"]]}], raw)


def second_process(machine):
    """Question 22: one process has used counters and rests; another wants them, before and after the first
    has disabled the profiler."""
    raw = {"nobody": counters_for(machine)}
    process = machine.programs.start([machine.program("seqpoint_gpu_probe"), "hold_counters"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
                                     env=machine.environment())
    try:
        for state in ("at rest", "disabled"):
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                line = process.stdout.readline().strip() if selector.select(machine.left(20)) else "nothing"
            if line != state:
                raise StepFailed(f"the first process should be {state}; it said: {line}")
            raw[state] = counters_for(machine)
            process.stdin.write("\n")
    finally:
        machine.programs.end(process)
    kept, then = refusal(raw["at rest"]), refusal(raw["disabled"])
    columns = ["availability", "enable", "configure", "start"]
    return answer(22, ["a process that has used counters and rests " +
                       (f"keeps them from another ({kept})" if kept else "leaves them to another") +
                       "; once it has disabled the profiler, the other " + (f"is refused ({then})" if then else "has them")],
                  [{"columns": ["the first process", *columns],
                    "rows": [[who, *[one.get(what) for what in columns]] for who, one in raw.items()]}], raw)


def metric_sets(machine):
    """Question 23: is every configuration of every shipped set built, started and decoded here?"""
    chip = machine.probe("environment")["chip"]
    out = machine.run([machine.program("seqpoint"), "metrics", "--json"], limit=30)
    names = [one["name"] for one in json.loads(out.text[out.text.index("{"):])["sets"]]
    raw, rows, refused = [], [], []
    for name in names:
        for number, metrics in enumerate(metric_set(machine, name, chip)):
            try:
                one = machine.probe("collect", *metrics, limit=30)
            except StepFailed as reason:
                one = {side: {"result": str(reason).splitlines()[-1]} for side in ("with_image", "without_image")}
            raw.append({"set": name, "configuration": number, **one})
            answers = [one[side]["result"] + (f" at {one[side]['call']}" if "call" in one[side] else "")
                       for side in ("with_image", "without_image")]
            passes = next((one[side]["passes"] for side in ("with_image", "without_image") if "passes" in one[side]), None)
            # The library takes the image for what one context counts, and none for what the device does.
            works = answers[1 if name == "links" else 0] == "0" and passes == 1
            rows.append([f"{name} {number + 1}", len(metrics), passes, *answers, works])
            if not works:
                refused.append(f"{name} {number + 1}")
    return answer(23, [f"all {len(rows)} configurations of the shipped sets are built, started and decoded on {chip}" if not
                       refused else f"{len(refused)} of {len(rows)} configurations are not: {', '.join(refused)}",
                       "links: " + "; ".join(f"with the availability image {r[3]}, without {r[4]}" for r in rows
                                             if r[0].startswith("links"))],
                  [{"columns": ["configuration", "metrics", "passes", "with the availability image", "without", "works"],
                    "rows": rows}], raw)


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
    states = {s["state"]: s["kernel_ns"]["median"] for s in raw["states"]}
    base = states["not enabled"]
    return answer(14, [f"shortest interval that was kept: {us(shortest)} µs",
                       "a kernel's time against that before sampling, by which the clock is told: " +
                       ", ".join(f"{state} {(ns / base - 1) * 100:+.2f} %" for state, ns in states.items()
                                 if state != "not enabled")],
                  [{"columns": ["sampling", "kernel µs", "change"], "rows": state_rows(raw["states"], ("kernel_ns",))}, {"columns": ["interval µs", "start µs", "stop µs", "samples", "width µs", "first one's", "overflow", "decode ns per sample",
                                "first sample - record start, µs", "last sample - record end, µs",
                                "share of work near records"], "rows": rows}], raw)


GRAPH_CASES = ("nothing ever", "kernel, from instantiation on", "kernel, at instantiation alone", "kernel, at launch alone",
               "graph, from instantiation on", "graph, at launch alone", "kernel at instantiation, graph at launch")


def graph_records(machine):
    cases = {}
    for index, name in enumerate(GRAPH_CASES):  # CUPTI may crash
        out = machine.run([machine.program("seqpoint_gpu_probe"), "graph_records", str(index)], limit=20,
                          env=machine.environment(), check=False)
        cases[name] = {"enabled": name, "crash": status_text(out.status)} if out.status < 0 else out.last_json()
    rows = [[name, c.get("kernel_records_per_launch"), c.get("graph_records_per_launch"),
             *[us(c[what]["median"]) if what in c else None for what in ("launch_ns", "launch_to_end_ns")], c.get("crash")]
            for name, c in cases.items()]

    def late(kind, name):  # what a launch of a graph that is older than the kind does
        case = cases[name]
        return case["crash"] if "crash" in case else f"{case[f'{kind}_records_per_launch']:g} records"
    never, kept = cases["nothing ever"], cases["graph, from instantiation on"]
    ended = [one["launch_to_end_ns"]["median"] for one in (never, kept)]
    return answer(15, ["a launch of a graph of 100 kernels that was instantiated before the kind was enabled leaves: kernels "
                       f"{late('kernel', 'kernel, at launch alone')}; whole graphs "
                       f"{late('graph', 'graph, at launch alone')}; whole graphs, instantiated under kernel records, "
                       f"{late('graph', 'kernel at instantiation, graph at launch')}",
                       f"keeping whole-graph records on costs {us(ended[1] - ended[0])} µs a launch ({us(ended[0])} µs without)"],
                  [{"columns": ["enabled (100 nodes)", "kernel records", "graph records", "launch µs", "launch to end µs",
                                "ended by"], "rows": rows}], {"cases": list(cases.values())})


def late_graphs(machine):
    """Questions 15 and 20: graphs that are instantiated between two windows of traced iterations."""
    raw = [machine.probe("late_graphs", setting, limit=20) for setting in range(3)]
    rows = [[one["kinds"], w["window"], w["graph"], w["graph_records_per_launch"], w["kernel_records_per_launch"],
             w.get("ids_of_the_calls_share")] for one in raw for w in one["windows"]]
    messages = []
    for one in raw:
        late = [w for w in one["windows"] if w["graph"] == "between windows"]
        graphs = min(w["graph_records_per_launch"] for w in late)
        kernels = min(w["kernel_records_per_launch"] for w in late)
        ids = [w["ids_of_the_calls_share"] for w in one["windows"] if "ids_of_the_calls_share" in w and w["window"] > 1]
        messages.append(f"{one['kinds']}: a graph from between two windows leaves {graphs:g} whole-graph and {kernels:g} of "
                         f"{one['nodes']} kernel records a launch; " +
                         (f"in later windows {min(ids) * 100:.0f} % of the records carry the ids of their launches"
                          if ids else "no record in later windows"))
    return answer(20, messages, [{"columns": ["kinds", "window", "graph instantiated", "graph records", "kernel records",
                                               "with ids of the launches"], "rows": rows}], raw)


def first_window(machine):
    raw = [machine.probe("first_window", modules, limit=60) for modules in (0, 200 if machine.software else 2000)]
    rows = [[one["modules"], w["window"], *[us(w[what]) for what in
             ("enable_ns", "work_before_ns", "work_within_ns", "flush_ns", "disable_ns", "work_after_ns")], w["records"]]
            for one in raw for w in one["windows"]]

    def stop(window):  # what the window adds to the program's time
        return us(sum(window[what] for what in ("enable_ns", "work_within_ns", "flush_ns", "disable_ns")) -
                  window["work_before_ns"])
    return answer(20, [f"with {one['modules']} modules loaded, the first window of kernel records costs "
                       f"{stop(one['windows'][0])} µs, the third {stop(one['windows'][2])} µs" for one in raw],
                  [{"columns": ["modules", "window", "enable µs", "work before µs", "work within µs", "flush µs", "disable µs",
                                "work after µs", "records"], "rows": rows}], raw)


# Calls that the library makes on a thread of its own while the program may be capturing; the second one
# is known to end a capture, the first to do nothing.
CALLS_BESIDE_A_CAPTURE = ("nothing", "cudaDeviceSynchronize", "cuptiActivityFlushAll", "cuptiActivityEnable, Disable",
                          "cuptiRangeProfilerDecodeData", "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerDisable, Enable")


def captures(machine):
    """Question 21: each call in a process of its own, as one that hangs says nothing of the others."""
    raw, rows, ends = [], [], []
    for call in CALLS_BESIDE_A_CAPTURE:
        try:
            one = machine.probe("captures", call, limit=20)
        except StepFailed as reason:
            rows.append([call, "-", str(reason).splitlines()[-1], None, None, False])
            ends.append(f"{call} (the process failed)")
            continue
        raw.append(one)
        for mode in one["modes"]:
            fine = mode["capture_result"] == 0 and mode["launch_result"] == 0
            rows.append([call, mode["mode"], mode["call_result"], mode["launch_result"], mode["capture_result"], fine])
            if not fine and call != "cudaDeviceSynchronize":
                ends.append(f"{call} ({mode['mode']})")
    return answer(21, ["no call of CUPTI on another thread ends a stream capture" if not ends else
                       "these calls on another thread end a stream capture: " + ", ".join(ends)],
                  [{"columns": ["call on another thread", "mode of the capture", "its result", "launch in the capture",
                                "end of the capture", "capture survives"], "rows": rows}], raw)


# Programs that use CUPTI themselves, and what they say of it.
OTHER_USERS = {
    "activity records": (["own_records"], lambda one: f"{one['records']} of {one['launches']} records"),
    "counter ranges": (["collect", "gpu__time_duration.sum"], lambda one: one["with_image"]["result"]),
    "PM sampling": (["sampling"], lambda one: ", ".join(row.get("start", row["set_config"]) for row in one["intervals"])),
}


def other_users(machine):
    """Question 19: programs that use CUPTI themselves, alone and under us, bound as they are and at once."""
    raw, rows = [], []
    for name, (arguments, say) in OTHER_USERS.items():
        try:
            answers = [say(machine.probe(*arguments, limit=30))]
        except StepFailed as reason:
            answers = [str(reason).splitlines()[-1]]
        for way, bind in (("lazy", {}), ("now", {"LD_BIND_NOW": "1"})):
            with session.Session(machine, f"other-{arguments[0]}-{way}") as watched:
                watched.start([machine.program("seqpoint_gpu_probe"), *arguments], extra=bind)
                out = watched.wait(30, check=False)
                job = watched.job()
            try:
                answers.append(say(out.last_json()))
            except StepFailed as reason:
                answers.append(str(reason).splitlines()[-1])
            raw.append({"use": name, "bound": way, "status": out.status, "job": job})
        rows.append([name, *answers, answers[0] == answers[1] == answers[2]])
    lost = [row[0] for row in rows if not row[4]]
    return answer(19, ["programs that use CUPTI themselves have what they have without us" if not lost else
                       "programs that use CUPTI themselves lose something under us: " + ", ".join(lost)],
                  [{"columns": ["use", "alone", "under us", "under us, LD_BIND_NOW=1", "same"], "rows": rows}], raw)


def call_time(machine):
    raw = machine.probe("call_time")
    found = {row["setting"]: row for row in raw["settings"]}
    plain = found["callback, call recorded"]["record_ns"]

    def inside(setting):
        return "inside" if found[setting]["record_ns"] - plain > raw["dawdle_ns"] / 2 else "outside of"
    launch = {name: row["launch_ns"]["median"] for name, row in found.items()}
    return answer(18, [f"what a callback takes at the beginning of a call is {inside('20 us at the beginning, call recorded')} "
                       f"the time of the call's record, at the end {inside('20 us at the end, call recorded')} it",
                       "a launch takes " + ", ".join(
                           f"{launch[name] - launch['callback']:+.0f} ns with its {what} recorded" for name, what in (
                               ("callback, call recorded", "call"), ("callback, kernel recorded", "kernel"),
                               ("callback, call and kernel recorded", "call and kernel")))],
                  [{"columns": ["setting", "launch ns", "record ns"],
                    "rows": [[r["setting"], r["launch_ns"]["median"], r.get("record_ns")] for r in raw["settings"]]}], raw)


def metric_set(machine, name, chip):
    """[[metric, ...], ...]: the configurations of a shipped set, as the range backend has them."""
    out = machine.run([machine.program("seqpoint"), "metrics", name, "--chip", chip, "--json"], limit=30)
    offers = json.loads(out.text[out.text.index("{"):])["sets"][0]["offers"]
    configs = next(offer for offer in offers if offer["backend"] == "COUNTER_BACKEND_RANGE")["configurations"]
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


STEPS = [
    ("environment", 30, environment), ("doctor", 30, doctor), ("torch_cupti", 90, torch_cupti),
    ("switch", 60, switch), ("nesting", 30, nesting), ("copy_clock", 60, copy_clock), ("launch", 90, launch),
    ("call_time", 30, call_time), ("range", 90, range_cost), ("range_activity", 60, range_activity),
    ("second_process", 40, second_process), ("metric_sets", 120, metric_sets), ("decode_thread", 30, decode_thread),
    ("graph_range", 30, graph_range), ("sampling", 60, sampling), ("graph_records", 40, graph_records),
    ("late_graphs", 40, late_graphs), ("first_window", 60, first_window), ("captures", 60, captures),
    ("opcodes", 90, opcodes), ("kernel_ranges", 60, kernel_ranges), ("exits", 120, exits),
    ("other_users", 90, other_users),
    ("cuda_profiler", 60, lambda machine: experiments.cuda_sandwich(machine, False)),
    ("cuda_profiler_teardown", 60, lambda machine: experiments.cuda_sandwich(machine, True)),
    ("torch_profiler", 120, lambda machine: experiments.torch_sandwich(machine, False)),
    ("torch_profiler_teardown", 120, lambda machine: experiments.torch_sandwich(machine, True)),
    ("graph_job", 90, experiments.graph_job_cuda),
    ("graph_job_torch", 120, lambda machine: experiments.graph_job_torch(machine, "graph")),
    ("nccl_ranks", 180, experiments.nccl_ranks),
    ("graph_job_compile", 180, lambda machine: experiments.graph_job_torch(machine, "compile")),
]
