#!/usr/bin/env python3
"""Measures on this machine's GPU what the project could not know without one.

  gpu [PARTS] [--out DIR]     PARTS: letters or steps, such as "a", "bd" or "b.gnmt_auto"; default: all,
                              what matters most first

docs/using/gpu.md says what each part measures and how to read the results. A step that is done is kept
and skipped by later calls with the same DIR; one that failed is recorded with its error, the others
go on. Python's standard library is enough for this program; steps that need PyTorch say so.
SEQPOINT_PYTHON names the Python that runs it and the trainings; default: python3.
"""
import argparse
import fcntl
import importlib
import shlex
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machine as machines  # noqa: E402
import results  # noqa: E402

PARTS = {
    "a": ("questions", "The questions that only a GPU answers"),
    "b": ("training", "PyTorch trainings against their own logs"),
    "c": ("counters", "Counters of the SeqPoints against counters of every iteration, and against ncu"),
    "d": ("overhead", "What being profiled costs"),
    "e": ("whatif", "Pairs of one change each: traces of both sides, and true times"),
    "f": ("workloads", "The CUDA workloads, against the software GPU's model"),
}
NO_GPU = 3
# What a GPU that is lent for half an hour is spent on, in three calls: docs/using/gpu.md says why in this order. Steps
# that are not here follow in the order of their parts.
ORDER = """
    a.environment a.doctor a.torch_cupti a.nesting a.graph_records a.late_graphs a.captures a.metric_sets
    a.second_process a.cuda_profiler a.cuda_profiler_teardown a.torch_profiler a.torch_profiler_teardown a.other_users
    a.graph_job a.graph_job_torch a.range a.range_activity a.decode_thread a.graph_range a.first_window a.switch
    a.call_time a.launch a.copy_clock a.sampling a.opcodes a.kernel_ranges a.graph_job_compile
    d.torch_adapter b.pace b.gnmt_auto b.transformer_auto b.ds2_auto b.gnmt_adapter d.torch_launches d.torch_graph d.torch_compute
    c.gnmt a.exits
    c.roofline c.torch_flops c.ncu d.governor f.gnmt d.soak
""".split()


def load_steps(letter):
    """[(name, limit in seconds, function(machine) -> result)]"""
    return importlib.import_module(f"steps.{PARTS[letter][0]}").STEPS


def in_order(chosen):
    """[(letter, step, limit, function)] of the chosen steps."""
    steps = [(letter, *step) for letter, only in chosen.items() for step in load_steps(letter)
             if only is None or step[0] in only]
    place = {name: index for index, name in enumerate(ORDER)}
    return sorted(steps, key=lambda step: place.get(f"{step[0]}.{step[1]}", len(ORDER)))


def choose(words):
    """{letter: set of step names, or None for all}"""
    if not words:
        return {letter: None for letter in PARTS}
    chosen = {}
    for word in words:
        letter, _, step = word.partition(".")
        if step:
            names = [name for name, _, _ in load_steps(letter)] if letter in PARTS else []
            if step not in names:
                sys.exit(f"gpu: no step \"{word}\"; --list shows all")
            if chosen.get(letter, set()) is not None:
                chosen.setdefault(letter, set()).add(step)
            continue
        for one in word.replace(",", ""):
            if one not in PARTS:
                sys.exit(f"gpu: no part \"{one}\"; there are {', '.join(PARTS)}")
            chosen[one] = None
    return {letter: chosen[letter] for letter in PARTS if letter in chosen}


def run_step(part, name, limit, function, machine, whole):
    """`whole`: the step has the time that it may take; else what this call has left."""
    print(f"{part.data['part']}.{name} ...", end=" ", flush=True)
    begin = time.monotonic()
    machine.deadline = begin + limit
    result = error = None
    try:
        result = function(machine)
        status = "done"
    except machines.Skipped as reason:
        status, error = "skipped", str(reason)
    except machines.StepFailed as reason:
        status, error = "failed", str(reason)
    except Exception:  # a mistake in a step must not cost the others
        status, error = "failed", traceback.format_exc()
    seconds = time.monotonic() - begin
    if status == "failed" and not whole and seconds > limit - 1:
        print(f"left for the next call ({seconds:.1f} s were too few)", flush=True)
        return "left for the next call"
    part.record(name, status, seconds, result, error)
    print(f"{status} ({seconds:.1f} s)" + (f": {error.strip().splitlines()[-1]}" if error else ""), flush=True)
    return status


def open_folder(folder):
    """Makes it and sees that this call alone writes to it, and can; its lock."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as reason:
        sys.exit(f"gpu: cannot write results to {folder}: {reason.strerror}; name another folder with --out")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"gpu: another call writes to {folder}: wait for it, or name another folder with --out")
    except OSError:
        pass  # a file system without locks
    return lock


def main():
    parser = argparse.ArgumentParser(prog="gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PARTS")
    parser.add_argument("--out", default="gpu-results", metavar="DIR", help="default: gpu-results")
    parser.add_argument("--again", action="append", default=[], metavar="PART",
                        help="a part or step that is measured anew though it is done")
    parser.add_argument("--limit", type=float, default=570, metavar="SECONDS",
                        help="of this call, all parts together; default: 570")
    parser.add_argument("--software", action="store_true",
                        help="tries the measuring programs on the software GPU and on PyTorch's CPU side")
    parser.add_argument("--bundle", metavar="DIR", help="the folder of bin, lib and softgpu; default: this one's")
    parser.add_argument("--list", action="store_true", help="the parts and their steps, and what is done")
    arguments = parser.parse_args()

    started = time.monotonic()
    # In the bundle this file is tests/gpu/gpu.py; a build tree, which tests name, is laid out alike.
    bundle = os.path.realpath(arguments.bundle or os.path.join(machines.HERE, "..", ".."))
    if not os.path.exists(os.path.join(bundle, "bin", "seqpoint")):
        sys.exit(f"gpu: no programs in {bundle}/bin: call the bundle's seqpoint/gpu, or name one with --bundle")
    chosen = choose(arguments.parts)
    again = choose(arguments.again) if arguments.again else {}
    if not arguments.parts and arguments.again:
        chosen = again
    folder = os.path.abspath(arguments.out)
    if arguments.list:
        parts = {letter: results.Part(folder, letter, title) for letter, (_, title) in PARTS.items()}
        for letter, (_, title) in PARTS.items():
            print(f"{letter}. {title}")
            for name, limit, _ in load_steps(letter):
                state = parts[letter].data["steps"].get(name, {}).get("status", "not measured")
                print(f"   {letter}.{name:<24} at most {limit:>3.0f} s   {state}")
        return 0

    work = tempfile.mkdtemp(prefix="seqpoint-gpu-")
    machine = machines.Machine(bundle, work, arguments.software)

    def end(number, _):
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # what is measured is being written
        machine.programs.end_all()
        os.write(2, f"\ngpu: ended by {signal.Signals(number).name}; what was done is kept\n".encode())
        sys.exit(128 + number)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, end)
    try:
        return measure(arguments, machine, folder, chosen, again, started)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def measure(arguments, machine, folder, chosen, again, started):
    if not machine.has_gpu():
        print("gpu: no NVIDIA GPU here (no /dev/nvidiactl, no nvidia-smi): nothing was measured. "
              "--software tries the measuring programs without one.", file=sys.stderr)
        return NO_GPU
    lock = open_folder(folder)
    for name in os.listdir(folder):  # of a call that was killed
        if name.endswith(".new"):
            os.remove(os.path.join(folder, name))
    parts = {letter: results.Part(folder, letter, title) for letter, (_, title) in PARTS.items()}
    machine.parts = parts
    details = results.Details(folder, machine.work)
    left_out = {part.path: part.unreadable for part in parts.values() if part.unreadable}
    left_out[details.path] = details.open()
    for path, why in left_out.items():
        if why is not None:
            print(f"gpu: {path} is not used ({why}); it is kept in {details.NAME}, unreadable/", file=sys.stderr)
            results.set_aside(path, machine.work)
    facts = machine.describe()
    counts = {"done": 0, "failed": 0, "skipped": 0, "kept": 0, "left for the next call": 0}
    try:
        report(folder, parts)
        for letter, name, limit, function in in_order(chosen):
            part = parts[letter]
            anew = letter in again and (again[letter] is None or name in again[letter])
            if part.finished(name) and not anew:
                counts["kept"] += 1
                continue
            left = arguments.limit - (time.monotonic() - started)
            # Steps take a third of their limit where all goes well.
            if left < limit / 3:
                counts["left for the next call"] += 1
                continue
            part.data["machine"] = facts
            whole = limit <= left or limit > arguments.limit
            counts[run_step(part, name, min(limit, left), function, machine, whole)] += 1
            report(folder, parts)
            details.keep()
    except OSError as reason:
        print(f"gpu: cannot write results to {folder}: {reason.strerror}; what was written before is kept. Make "
              "room, and call again with the same --out", file=sys.stderr)
        return 1
    finally:
        try:
            report(folder, parts)
            details.keep()
        except OSError:
            pass  # said above
        os.close(lock)
    print("; ".join(f"{count} {what}" for what, count in counts.items() if count) + f"; {folder}/report.md")
    if counts["left for the next call"]:
        words = " ".join(map(shlex.quote, [*arguments.parts, "--out", folder] +
                                          (["--software"] if arguments.software else [])))
        print(f"the time of this call is over: call again to go on: gpu {words}")
    return 1 if counts["failed"] else 0


def report(folder, parts):
    steps_of = {letter: [name for name, _, _ in load_steps(letter)] for letter in PARTS}
    present = [part for part in parts.values() if part.data["steps"]]
    try:
        text = results.markdown(present, steps_of)
    except (KeyError, TypeError, AttributeError, ValueError):  # the JSON files have all of it
        text = "# Measured on a GPU\n\nthe report could not be written:\n\n" + traceback.format_exc()
    results.write_whole(os.path.join(folder, "report.md"), text.encode())


if __name__ == "__main__":
    sys.exit(main())
