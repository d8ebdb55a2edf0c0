"""What meets a profiler in the field: another profiler in the same process, graphs that come late, and hours.
Steps of the parts a and d."""
import ctypes
import json
import os
import random
import statistics
import threading
import time

import session
from machine import Skipped, StepFailed, status_text
from steps.rungs import COUNTERS, WINDOW, Rung

MARK, AUTO, TRACE = ["level", "mark"], ["level", "auto"], ["level", "trace"]


def events_of(watched, name):
    """The trace events of the traced iterations so far; [] where there are none."""
    path = os.path.join(watched.folder, name)
    watched.ask("export", watched.name, "--chrome", path, check=False)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    os.remove(path)
    return events


def by_iteration(events):
    """{iteration's number: {"graphs", "kernels"}}: whole-graph and kernel records of each traced iteration.

    Iterations without kernel records are none of a window: whole graphs are recorded at other levels, too."""
    found = {}
    for event in events:
        number = event.get("args", {}).get("iteration")
        if event.get("cat") == "kernel" and number is not None:
            found.setdefault(number, {"graphs": 0, "kernels": 0})["graphs" if event["args"].get("graph") else "kernels"] += 1
    return {number: one for number, one in found.items() if one["kernels"] > 0}


# --- another profiler in the process --------------------------------------------------------------

HALF = 200  # iterations
PROFILE = "profile 12"  # every length of the jobs as often as the others


def torch_sandwich(machine, teardown):
    """Question 12: torch.profiler between two halves of a training, alone and beside us."""
    machine.need_torch()
    command = [machine.python, machine.torch_script("sandwich.py"), *session.device(machine)]
    return sandwich(machine, "torch", teardown, command, False, "block", 20 if machine.software else HALF)


def cuda_sandwich(machine, teardown):
    """The same with what torch.profiler does with CUPTI, by a CUDA program."""
    command = [machine.program("seqpoint_gpu_probe"), "soak_job", "marks"]
    return sandwich(machine, "cuda", teardown, command, True, "timed", 40 if machine.software else HALF)


def sandwich(machine, name, teardown, command, cuda, verb, half):
    extra = {"TEARDOWN_CUPTI": "1"} if teardown else {}
    alone = Rung(machine, "sandwich", "alone", (False, [], verb), command, cuda=cuda, extra=extra)
    try:
        alone.line()
        plain = [alone.block(half), alone.say(PROFILE), alone.block(half)]
    finally:
        alone.close()
    # Before the user's profiler: a window of traced iterations and counters, as in a job that it meets.
    # PyTorch without a GPU has nothing to trace or to count.
    measured = [] if machine.software and not cuda else [*WINDOW, COUNTERS, MARK]
    rung = Rung(machine, "sandwich", name + ("-teardown" if teardown else ""), (True, [MARK, *measured], verb), command,
                cuda=cuda, run_options=["--overhead-budget", "30%"], extra=extra)
    lost = ""
    after = status = None
    try:
        rung.line()
        rung.prepare()
        before = half_of(rung, half)
        own = rung.say(PROFILE)
        try:
            rung.block(20)
            # Whoever ends CUPTI does it in the first calls after its profile, and we look for it every 2 s.
            time.sleep(2.5)
            rung.block(20)
            rung.patience = 10.0
            try:
                rung.follow(measured)
            except Skipped as reason:  # that counters do not come back is an answer
                lost = str(reason)
                rung.follow([MARK])
            after = half_of(rung, half, before["with_kernels"])
        except (StepFailed, OSError) as reason:  # that the program does not live on is one, too
            lost = str(reason)
        status = rung.end()
    finally:
        rung.close()
    return told_of(teardown, plain, own, before, after, lost, status)


def told_of(teardown, plain, own, before, after, lost, status):
    """The sandwich in words. `after` is None where the program did not live on, or was lost from sight."""
    new = after or {}

    def more(what):  # in the second half than before
        return new[what] - before[what] if new else None
    rows = [["ms of an iteration, alone", plain[0]["median_ms"], plain[2]["median_ms"]],
            ["ms of an iteration, beside us", before["median_ms"], new.get("median_ms")],
            ["the same as we found it", before["found_ms"], new.get("found_ms")],
            ["clock of the records", before["clock"], new.get("clock")],
            ["windows of traced iterations", before["windows"], more("windows")],
            ["iterations with kernel records", len(before["with_kernels"]), len(new["with_kernels"]) if new else None],
            ["kernel records of one of them", before["kernels_each"], new.get("kernels_each")],
            ["records without times", before["without_times"], more("without_times")],
            ["stops for counters", before["counters"], more("counters")],
            ["error", before["error"], "; ".join(filter(None, (lost, new.get("error"))))]]
    rows += [[f"what is said of {name}", before["says"].get(name), message] for name, message in new.get("says", {}).items()
             if message != before["says"].get(name)]
    same = all(plain[1][what] == own[what] for what in ("kernels", "operators"))
    off = [f"{half['found_ms'] / half['median_ms']:.3f} of the program's own time" if half.get("found_ms") else "no times"
           for half in (before, new)]
    cupti = own["cupti"]
    decides = "decides whether times and records are right after another profiler of the process has ended" + (
        " and has finalised CUPTI" if teardown else "")
    summary = [
        "CUPTI: " + (f"{cupti['file']}, version {cupti['version']}" if cupti else "none in this process") +
        f"; the program ended with {status_text(status) if status is not None else 'no status within its time'}",
        f"in the user's trace: {plain[1]['kernels']} GPU events and {plain[1]['operators']} operations alone, "
        f"{own['kernels']} and {own['operators']} with us loaded: {'complete' if same else 'NOT complete'}",
        f"{decides}: the program was lost after it: {lost}" if not new else
        f"{decides}: iterations as we found them have {off[0]} before it and {off[1]} after it; after it {more('windows')} "
        f"windows, {len(new['with_kernels'])} iterations with kernel records, {more('without_times')} records without times "
        f"and {more('counters')} stops for counters"]
    return {"question": 12, "summary": summary, "raw": {"alone": plain, "profile": own, "halves": [before, after]},
            "tables": [{"columns": ["", "before torch.profiler", "after"], "rows": rows}]}


def half_of(rung, count, known=()):
    """What the program and what we say of `count` iterations at level mark. `known`: iterations whose kernel records
    are no news."""
    watched = rung.session
    time.sleep(0.5)  # records are on their way
    first = watched.job()["iterations"]
    own = rung.block(count)
    rung.block(2)  # the last iteration ends with the next one's boundary
    time.sleep(0.5)
    job = watched.job()
    found = [int(one["duration_ns"]) / 1e6 for one in watched.ask("iterations", watched.name, "--all")["iterations"]
             if first + 2 <= int(one["number"]) < first + count and not one["distorted"] and "duration_ns" in one]
    traced = by_iteration(events_of(watched, "sandwich.json"))
    newest = sorted(set(traced) - set(known))
    return {"median_ms": own["median_ms"], "found_ms": statistics.median(found) if found else None, "found": len(found),
            "clock": job["clock_kind"], "windows": watched.stops("traces"), "with_kernels": newest, "says": watched.says(),
            "kernels_each": statistics.median(traced[number]["kernels"] for number in newest) if newest else None,
            "without_times": int((job["losses"] or {}).get("invalid_timestamps") or 0),
            "counters": watched.stops("counters"), "error": job["error"] or "none"}


# --- graphs that come late ------------------------------------------------------------------------

# Kernels of an iteration beside its graph: the optimiser's and the like.
BESIDE_THE_GRAPH = 4


def graph_rows(traced, length_of, early):
    """Rows of [graph, traced iterations, whole-graph records each, kernel records each, without any record].

    `traced`: by_iteration(); `length_of`: {iteration: the job's length}; `early`: lengths whose graphs are older
    than the first window."""
    rows = []
    for name, wanted in (("captured before the first window", True), ("captured later", False)):
        some = [one for number, one in traced.items() if number in length_of and (length_of[number] in early) == wanted]
        rows.append([name, len(some), sum(one["graphs"] for one in some) / len(some) if some else None,
                     sum(one["kernels"] for one in some) / len(some) if some else None,
                     sum(one["graphs"] == 0 and one["kernels"] <= BESIDE_THE_GRAPH for one in some)])
    return rows


def lengths_of(iterations, told):
    """{number: length} of the lengths that the job told: as found they are bytes, or bytes divided by what they have
    in common."""
    found = {int(one["number"]): float(one["lengths"][0]) for one in iterations if one.get("lengths")}
    if not found or not told:
        return {}
    unit = max(found.values()) / max(told)
    return {number: round(value / unit) for number, value in found.items() if round(value / unit) in told}


def graph_job(machine, name, command, cuda, blocks):
    """Question 20: lengths that come after the rule is found, each with a graph of its own, under windows of
    traced iterations and counters."""
    rung = Rung(machine, "late", name, (True, [MARK], "block"), command, cuda, ["--overhead-budget", "50%"],
                extra=session.WITHOUT_ADAPTER)
    answers = []
    try:
        rung.line()
        say = rung.say

        def note(line):  # what is captured while the rule is looked for counts, too
            answers.append(say(line))
            return answers[-1]
        rung.say = note
        rung.prepare()
        early = {length for one in answers for length in one["captured_lengths"]}
        for block in range(blocks):
            if machine.left() < 25:
                break
            rung.session.tell(*(TRACE if block % 3 == 1 else AUTO))
            time.sleep(0.1)
            rung.block(20)
        rung.session.tell(*MARK)
        rung.block(20)
        time.sleep(0.5)
        watched = rung.session
        job = watched.job()
        iterations = watched.ask("iterations", watched.name, "--all", check=False).get("iterations", [])
        traced = by_iteration(events_of(watched, "late.json"))
        counters, traces = watched.stops("counters"), watched.stops("traces")
        status = rung.end()
    finally:
        rung.close()
    told = {length for one in answers for length in one["captured_lengths"]}
    length_of = lengths_of(iterations, told)
    rows = graph_rows(traced, length_of, early)
    late = rows[1]
    failed, count = answers[-1]["captures_failed"], 20 * len(answers)
    return {"question": 20, "raw": {"answers": answers, "job": job},
            "summary": [
                f"{len(told)} graphs, {len(told - early)} of them captured later; {failed} captures failed"
                f" ({answers[-1]['failure']}); the program ended with "
                f"{status_text(status) if status is not None else 'no status within its time'}; "
                f"{len(iterations)} iterations found of {count}; {job.get('error') or 'no error reported'}",
                "decides whether graphs that come late are a hole in traces, and whether measuring breaks captures: " +
                (f"of {late[1]} traced iterations with such a graph {late[4]} hold no record of it; " if late[1] else
                 "no iteration with such a graph was traced; ") +
                f"{traces} stops for traces and {counters} for counters, {failed} captures failed"],
            "tables": [{"columns": ["graph", "iterations traced", "whole-graph records each", "kernel records each",
                                    "without any record of the graph"], "rows": rows}]}


def graph_job_cuda(machine):
    command = [machine.program("seqpoint_gpu_probe"), "soak_job", "graphs"]
    return graph_job(machine, "cuda", command, True, 6 if machine.software else 30)


def graph_job_torch(machine, how):
    machine.need_torch()
    if machine.software:
        raise Skipped("without a GPU PyTorch has no CUDA graphs")
    command = [machine.python, machine.torch_script("late_graphs.py"), *session.device(machine), "--how", how]
    return graph_job(machine, how, command, False, 24)


# --- ranks ----------------------------------------------------------------------------------------

SLOW_FROM = 150


def nccl_ranks(machine):
    """Question 25, as far as one GPU goes: two ranks of NCCL that take turns on it."""
    machine.need_torch()
    script = [machine.python, machine.torch_script("ranks.py"), *session.device(machine), "--iterations", "400",
              "--slow-from", str(SLOW_FROM)]
    alone = machine.run(script, env=machine.environment(cuda=False), limit=60).last_json()
    said = os.path.join(machine.folder("nccl"), "nccl-%p.log")
    with session.Session(machine, "nccl-ranks") as watched:
        watched.start(script, cuda=False, extra={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,PROFILE",
                                                 "NCCL_DEBUG_FILE": said})
        out = watched.wait(90).last_json()
        ranks = watched.ask("ranks", watched.name, check=False)
        job, says = watched.job(), watched.says()
        watched.iterations()
    found = [(one["rank"], one["course"], one["message"]) for one in ranks.get("ranks", [])]
    return {"question": 25, "summary": [
        f"PyTorch {out['torch']}, NCCL {out['nccl']}: an iteration takes {alone['ms']:.2f} ms alone, {out['ms']:.2f} ms watched",
        f"the library says of NCCL: {says.get('nccl') or 'nothing amiss'}",
        f"{job['iterations']} iterations; verdicts {found}; rank 1 is slow from iteration {SLOW_FROM} on"],
        "tables": [], "raw": {"alone": alone, "watched": out, "ranks": ranks, "says": says, "job": job}}


# --- hours in minutes -----------------------------------------------------------------------------

def counters_for(machine):
    """What a process of its own is answered that asks for counters: {call: result}, up to the first that is
    refused."""
    try:
        return machine.probe("permission", limit=20)
    except StepFailed as reason:
        return {"the process": str(reason).splitlines()[-1]}


def refusal(answers):
    """The last call of counters_for() and its result; None: it had them."""
    call, result = list(answers.items())[-1]
    return None if call == "start" and result == "0" else f"{call}: {result}"


SOAK = {
    "not loaded": (False, [], "block"),
    "mark": (True, [MARK], "block"),
    "mark after five windows": (True, [MARK] + 5 * WINDOW, "block"),
    "released after five windows": (True, [MARK] + 5 * WINDOW + [["release"]], "block"),
    "counters used, then at rest": (True, [MARK, COUNTERS, MARK], "block"),
}
NEEDED = ("not loaded", "mark after five windows")
# Where the library uses CUPTI: elsewhere the call would begin a use.
FLUSHES = ("mark", "mark after five windows", "counters used, then at rest")


class Clocks:
    """The clock of the multiprocessors, looked at four times a second by a thread of its own."""

    SM = 1  # NVML_CLOCK_SM (nvml.h)

    def __init__(self):
        self.found = []  # (time.monotonic(), MHz)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return  # no driver
        device, mhz = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
            return
        while not self.over.wait(0.25):
            if nvml.nvmlDeviceGetClockInfo(device, self.SM, ctypes.byref(mhz)) == 0:
                self.found.append((time.monotonic(), mhz.value))

    def since(self, begin):
        """MHz, the median of what was read since then; None: nothing."""
        some = [mhz for at, mhz in self.found if at >= begin]
        return statistics.median(some) if some else None

    def close(self):
        self.over.set()
        self.thread.join(timeout=5)


def threads_of(pid):
    """{name: CPU seconds of the threads with that name}, and resident MiB."""
    seconds = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
                name = file.read().strip()
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as file:
                seconds[name] = seconds.get(name, 0.0) + int(file.read().split()[0]) / 1e9
        except OSError:
            continue  # it has ended
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return seconds, resident


def sample(rung, count, clocks):
    """One block, and what the process is like after it."""
    ask = "flush" if rung.name in FLUSHES else "state"
    state = rung.say(ask)
    threads, _ = threads_of(state["pid"])
    begin = time.monotonic()
    block = rung.block(count)
    wall = time.monotonic() - begin
    mhz = clocks.since(begin)
    after = rung.say(ask)
    later, resident = threads_of(state["pid"])
    # The job's own thread is the one that launches; "seqpoint" is ours, the others are the driver's and CUPTI's.
    cpu = {name: later[name] - threads.get(name, 0.0) for name in later}
    own = sum(seconds for name, seconds in cpu.items() if name == "seqpoint")
    launching = block["host_ms"] * count / 1e3
    return {"at": time.monotonic(), "ms": block["ms"], "flush_ms": after.get("flush_ns", 0) / 1e6 or None,
            "slowest_flush_ms": after.get("slowest_flush_ns", 0) / 1e6 or None, "wall": wall,
            "helper_share": own / wall, "others_share": max(0.0, sum(cpu.values()) - own - launching) / wall,
            "resident_mib": resident, "gpu_mib_more": (state["free_bytes"] - after["free_bytes"]) / 2**20, "mhz": mhz}


def first_and_last(samples, what):
    """Medians of the first and of the last third."""
    values = [one[what] for one in samples]
    third = max(1, len(values) // 3)
    return [statistics.median(some) if None not in some else None for some in (values[:third], values[-third:])]


def soak(machine):
    """Question 24: what stays behind in a process after windows and counters, and what grows."""
    command = [machine.program("seqpoint_gpu_probe"), "soak_job"]
    block_s, reserve, most = (0.05, 20, 3) if machine.software else (1.6, 30, 10**6)
    rungs, samples, left_out, clocks = [], {}, [], Clocks()
    begin = time.monotonic()
    try:
        for name, kind in SOAK.items():
            rungs.append(Rung(machine, "soak", name, kind, command, cuda=True, run_options=["--overhead-budget", "50%"]))
        for rung in list(rungs):
            try:
                rung.line()
                rung.prepare()
                samples[rung.name] = []
            except (Skipped, StepFailed) as reason:
                if rung.name in NEEDED:
                    raise
                left_out.append(str(reason).splitlines()[0])
                rungs.remove(rung)
                rung.close()
        base = next(rung for rung in rungs if rung.name == "not loaded")
        base.block(20)
        count = max(20, int(block_s * 1e3 / base.block(20)["ms"]))
        rounds = 0
        while rounds < most and machine.left() > reserve:
            rounds += 1
            # Each for a moment while the others rest: their helper threads go on.
            for rung in random.sample(rungs, len(rungs)):
                try:
                    samples[rung.name].append(sample(rung, count, clocks))
                except (StepFailed, OSError, ValueError) as reason:  # the others go on
                    if rung.name in NEEDED:
                        raise
                    left_out.append(f"{rung.name}, in round {rounds}: {str(reason).splitlines()[0]}")
                    rungs.remove(rung)
                    rung.close()
        asked = counters_for(machine)
    finally:
        for rung in rungs:
            rung.close()
        clocks.close()
    minutes = (time.monotonic() - begin) / 60
    if not rounds:
        raise StepFailed("the jobs took so long to begin that no time was left for a round")
    rows, figures = [], {}
    samples = {name: some for name, some in samples.items() if some}
    for name, some in samples.items():
        against = [one["ms"] / other["ms"] - 1 for one, other in zip(some, samples["not loaded"])]
        figures[name] = {what: first_and_last(some, what) for what in
                         ("ms", "flush_ms", "slowest_flush_ms", "helper_share", "others_share", "resident_mib", "mhz")}
        figures[name]["more"] = statistics.median(against)
        figures[name]["gpu_mib_more"] = sum(one["gpu_mib_more"] for one in some)
        one = figures[name]
        rows.append([name, *one["ms"], f"{one['more'] * 100:+.2f} %", *one["flush_ms"], *percent(one["helper_share"]),
                     *percent(one["others_share"]), *one["resident_mib"], one["gpu_mib_more"], one["mhz"][1]])
    launches = count * rounds * 36 * 28  # of each process: soak.cc
    marked = figures["mark after five windows"]
    after_counters = figures.get("counters used, then at rest", {"mhz": [None, None]})["mhz"][1]
    more = {name: f"{figure['more'] * 100:+.2f} %" for name, figure in figures.items()}
    return {"question": 24, "raw": {"samples": samples, "second_process": asked, "minutes": minutes},
            "summary": [
                f"{minutes:.1f} minutes, {rounds} rounds, {launches / 1e6:.1f} million launches in each process",
                "decides what windows and counters leave behind: an iteration takes, against a program without us, " +
                "; ".join(f"{name} {text}" for name, text in more.items() if name != "not loaded"),
                "decides whether anything grows with time: at mark after five windows, a flush took "
                f"{text_of(marked['flush_ms'][0])} ms at the beginning and {text_of(marked['flush_ms'][1])} ms at the end, the helper "
                f"thread {marked['helper_share'][0] * 100:.2f} % and {marked['helper_share'][1] * 100:.2f} % of a core, the "
                f"process {marked['resident_mib'][0]:.0f} and {marked['resident_mib'][1]:.0f} MiB, the GPU's memory "
                f"{marked['gpu_mib_more']:+.0f} MiB",
                "decides whether the profiler is kept from others while it rests, and whether it holds the clock: another "
                f"process that asks for counters {'is refused (' + refusal(asked) + ')' if refusal(asked) else 'has them'}; "
                f"the clock of the multiprocessors in MHz: {text_of(after_counters)} after counters, "
                f"{text_of(figures['not loaded']['mhz'][1])} without us", *[f"left out: {one}" for one in left_out]],
            "tables": [{"columns": ["rung", "ms at first", "ms at last", "more than not loaded", "flush ms at first", "at last",
                                    "helper thread", "at last", "CUPTI's and the driver's threads", "at last",
                                    "resident MiB", "at last", "GPU memory MiB more", "MHz"], "rows": rows}]}


def percent(shares):
    return [None if share is None else f"{share * 100:.2f} %" for share in shares]


def text_of(value):
    return "not known" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"

