#!/usr/bin/env python3
"""Tests of `./dev gpu` without a GPU: comparison and report on made data, the driver's promises, the
probes and the parts on the software GPU, the PyTorch scripts on the CPU.

  gpu_test.py BUILD_FOLDER [TestClass ...]     BUILD_FOLDER holds bin, lib and softgpu

Ends with 77 when what a class needs is missing, and says what."""
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare  # noqa: E402
import gpu as driver  # noqa: E402
import machine as machines  # noqa: E402
import results  # noqa: E402
from steps import counters, experiments, whatif, workloads  # noqa: E402
from steps.questions import line_through, operations_of  # noqa: E402

SKIPPED = 77
BUILD = ""


def made_run(count=200):
    """A log of `count` iterations, and what a perfect profiler would have found of it."""
    log, found, now = [], [], 10**18
    for index in range(count):
        length = 10 + index * 7 % 50
        log.append({"phase": "", "lengths": (length,), "begin_ns": now, "forward_ns": now + 50_000,
                    "backward_ns": now + 250_000, "step_ns": now + 700_000, "duration_ns": length * 20_000.0})
        found.append({"boundary_ns": str(now + 10_000), "lengths": [str(length)], "phase": "", "distorted": False,
                      "duration_ns": str(length * 20_000)})
        now += 1_000_000
    total = sum(row["duration_ns"] for row in log)
    answer = {"value": total, "low": total * 0.99, "high": total * 1.01, "iterations": count, "of": count, "basis": ""}
    return log, found, {1.0: answer}


def figures(log, found, asked):
    return {row[0]: row for row in compare.judge(compare.compare(log, found, asked))}


NEAR = "boundary between optimiser and backward, from iteration 31 on"
FOLLOWS = "found length is one where the true one is"
EXACT = "boundary between first call and forward, from iteration 31 on"


class Comparison(unittest.TestCase):
    def test_a_perfect_profile_meets_every_figure(self):
        rows = figures(*made_run())
        self.assertEqual([row for row in rows.values() if row[3] is False], [])
        self.assertEqual(rows[EXACT][1], "100.00 %")
        self.assertTrue(rows[FOLLOWS][3])
        self.assertEqual(rows["found length is a true one"][1], "100.00 %")

    def test_a_boundary_that_is_missing_doubled_or_late_is_seen(self):
        log, found, asked = made_run()
        for spoil in (lambda f: f[:100] + f[101:], lambda f: f + [dict(f[100], boundary_ns=str(log[100]["begin_ns"] + 20_000))],
                      lambda f: [dict(i, boundary_ns=str(int(i["boundary_ns"]) + 300_000)) for i in f]):
            edges = compare.compare(log, spoil(found), asked)["boundaries"]
            self.assertLess(edges["exact_share"], 1)
            self.assertLess(edges["near_share"], 1)

    def test_a_boundary_at_the_step_or_in_the_forward_pass_is_near_and_not_exact(self):
        log, found, asked = made_run()
        at_step = [found[0]] + [dict(i, boundary_ns=str(row["step_ns"] + 10)) for i, row in zip(found[1:], log)]
        in_forward = [dict(i, boundary_ns=str(row["forward_ns"] + 10)) for i, row in zip(found, log)]
        for moved in (at_step, in_forward):
            edges = compare.compare(log, moved, asked)["boundaries"]
            self.assertEqual(edges["near_share"], 1)
            self.assertEqual(edges["exact_share"], 0)

    def test_evaluation_is_no_training_iteration(self):
        log, found, asked = made_run()
        extra = dict(log[50], phase="evaluation", begin_ns=log[50]["step_ns"] + 100, forward_ns=log[50]["step_ns"] + 200,
                     backward_ns=0)
        rows = figures(log[:51] + [extra] + log[51:], found, asked)
        self.assertTrue(rows["iterations (true, found)"][3])
        self.assertTrue(rows[NEAR][3])

    def test_a_length_of_another_iteration_is_seen(self):
        log, found, asked = made_run()
        shifted = [dict(one, lengths=other["lengths"]) for one, other in zip(found[1:], found)] + [found[-1]]
        self.assertLess(compare.compare(log, [found[0]] + shifted[:-1], asked)["lengths"]["is_share"], 0.1)
        noise = [dict(one, lengths=[str(index * 7919 % 97)]) for index, one in enumerate(found)]
        self.assertFalse(figures(log, noise, asked)[FOLLOWS][3])

    def test_bytes_that_follow_the_length_tell_it(self):
        log, found, asked = made_run()
        rows = figures(log, [dict(one, lengths=[str(int(one["lengths"][0]) * 4096)]) for one in found], asked)
        self.assertTrue(rows[FOLLOWS][3])
        self.assertEqual(rows["found length tells all true ones"][1], "100.00 %")
        self.assertEqual(rows["found length is a true one"][1], "0.00 %")

    def test_a_projection_that_is_off_is_missed(self):
        log, found, asked = made_run()
        asked[1.0] = {k: v * 1.006 if k in ("value", "low", "high") else v for k, v in asked[1.0].items()}
        row = figures(log, found, asked)["epoch time asked at 100 %"]
        self.assertFalse(row[3])
        self.assertIn("+0.600 %", row[1])

    def test_iterations_that_were_measured_count_as_others_do(self):
        log, found, asked = made_run()
        for index in range(60, 120, 10):
            log[index]["duration_ns"] *= 3
            found[index]["distorted"] = True
        result = compare.compare(log, found, asked)
        self.assertGreater(result["total_ns"], 1.02 * asked[1.0]["value"])
        self.assertAlmostEqual(result["total_undisturbed_ns"] / asked[1.0]["value"], 1, delta=0.002)

    def test_a_projection_without_an_answer_is_missed(self):
        log, found, _ = made_run()
        self.assertFalse(figures(log, found, {0.05: None, 1.0: None})["epoch time asked at 100 %"][3])


class Reports(unittest.TestCase):
    def test_kernels_are_put_into_classes(self):
        for name, expected in (("gemm_tf32_64x64_nn", "gemm_tf32"), ("gemm_tf32_64x64_splitk", "gemm_tf32"),
                               ("seqpoint::workload::kernels::layernorm_forward(float const*, int)", "layernorm_forward"),
                               ("void a::softmax<128>(float*)", "softmax"),
                               ("_ZN8seqpoint8workload7kernels11clip_factorEPKffPfPi", "clip_factor"),
                               ("_ZN8seqpoint7softmaxILi128EEEvPf", "softmax")):
            self.assertEqual(workloads.kernel_class(name), expected)

    def test_the_models_error_is_per_class(self):
        error = workloads.model_error({"gemm_32x32_nn": (10, 1000.0), "gemm_64x64_nn": (10, 3000.0), "here": (1, 5.0)},
                                      {"gemm_32x32_nt": (20, 8000.0), "model_only": (1, 1.0)})
        self.assertEqual(error["classes"], [["gemm", 20, 200.0, 400.0, 2.0]])
        self.assertEqual((error["only_here"], error["only_model"]), (["here"], ["model_only"]))

    def test_counters_beside_the_sum_over_all_iterations(self):
        def counter(metric, value):
            return {"metric": metric, "ratio": False,
                    "projection": {"total": {"value": value, "low": value * 0.99, "high": value * 1.01}}}
        rows = counters.lay_beside({"counters": [counter("sm__inst_executed.sum", 105.0), counter("dram__bytes_read.sum", 99.5),
                                                 counter("unknown", 1.0)]},
                                   {"sm__inst_executed.sum": [40.0, 60.0], "dram__bytes_read.sum": [100.0]})
        self.assertEqual([(row[0], row[4], row[5], row[6]) for row in rows],
                         [("sm__inst_executed.sum", "+5.000 %", False, False), ("dram__bytes_read.sum", "-0.500 %", True, True)])

    def test_ncu_is_read(self):
        text = ('==PROF== Connected to process 7\n{"expected": 1}\n==PROF== Disconnected\n'
                '"ID","Process ID","Kernel Name","Context","dram__bytes_read.sum","sm__inst_executed.sum"\n'
                '"","","","","byte","inst"\n'
                '"0","7","probe_copy(float *, const float *, unsigned long)","1","268,435,456","1184256"\n'
                '"1","7","probe_multiply_add(float *, int)","1","0","69000000"\n')
        self.assertEqual(counters.read_ncu(text),
                         [{"kernel": "probe_copy", "dram__bytes_read.sum": 268435456.0, "sm__inst_executed.sum": 1184256.0},
                          {"kernel": "probe_multiply_add", "dram__bytes_read.sum": 0.0, "sm__inst_executed.sum": 69000000.0}])
        with self.assertRaisesRegex(machines.StepFailed, "Failed to initialize"):
            counters.read_ncu("==ERROR== Failed to initialize the profiler: LibraryNotLoaded")

    def test_pairs_with_a_side_that_is_missing(self):
        rows, failed = whatif.lay_out([{"pair": "tf32", "side": "before", "ms": 4.0}, {"pair": "tf32", "side": "after", "ms": 2.0},
                                       {"pair": "compile", "side": "before", "ms": 4.0},
                                       {"pair": "compile", "side": "after", "failed": "OSError: no compiler"}])
        self.assertEqual([row[:4] for row in rows], [["tf32", 4.0, 2.0, 0.5], ["compile", 4.0, None, None]])
        self.assertEqual(failed, ["compile after: OSError: no compiler"])

    def test_a_graph_that_leaves_no_record_is_counted(self):
        def record(iteration, graph):
            return {"cat": "kernel", "name": "x", "ts": 1, "args": {"iteration": iteration, **({"graph": 1} if graph else {})}}
        # Iterations 1 and 2 have their graph and the optimiser; 3 has its nodes, 4 the optimiser alone. 5 is in no
        # window: whole graphs are recorded at other levels, too.
        events = [record(1, True), record(1, False), record(2, True), record(2, False), *[record(3, False)] * 20,
                  record(4, False), record(5, True), {"cat": "gpu_memcpy", "args": {"iteration": 1}}, {"ph": "M"}]
        traced = experiments.by_iteration(events)
        self.assertEqual(sorted(traced), [1, 2, 3, 4])
        rows = experiments.graph_rows(traced, {1: 16, 2: 41, 3: 42, 4: 42, 5: 42}, {16})
        self.assertEqual([row[1:] for row in rows], [[1, 1.0, 1.0, 0], [3, 1 / 3, 22 / 3, 1]])
        self.assertEqual(experiments.graph_rows({}, {}, {16})[1][1:], [0, None, None, 0])

    def test_lengths_are_found_whatever_they_are_divided_by(self):
        found = [{"number": "7", "lengths": ["1024"]}, {"number": "8", "lengths": ["2688"]}, {"number": "9", "lengths": []},
                 {"number": "10", "lengths": ["1280"]}]
        self.assertEqual(experiments.lengths_of(found, {16, 42}), {7: 16, 8: 42})
        self.assertEqual(experiments.lengths_of(found, set()), {})

    def test_what_grows_is_the_last_third_against_the_first(self):
        samples = [{"ms": value} for value in (1, 2, 1, 5, 9, 9, 3, 4, 3)]
        self.assertEqual(experiments.first_and_last(samples, "ms"), [1, 3])
        self.assertEqual(experiments.first_and_last([{"ms": None}], "ms"), [None, None])

    def test_a_clock_that_changes_and_a_program_that_is_lost_are_told(self):
        plain = [{"median_ms": 5.0}, {"kernels": 30, "operators": 10}, {"median_ms": 5.0}]
        own = {"kernels": 30, "operators": 10, "cupti": {"file": "libcupti.so.13", "version": 130001}}
        before = {"median_ms": 5.0, "found_ms": 5.0, "clock": "REAL", "windows": 1, "with_kernels": [7, 8], "kernels_each": 3,
                  "without_times": 1, "counters": 2, "error": "none", "says": {"activity": "GPU work can be recorded"}}
        # A clock of ticks: 2.4 of them in a nanosecond.
        after = dict(before, found_ms=12.0, clock="FOREIGN", windows=3, with_kernels=[21], without_times=5, counters=3,
                     says={"activity": "no kernel is recorded"})
        result = experiments.told_of(False, plain, own, before, after, "", 0)
        self.assertIn(["what is said of activity", "GPU work can be recorded", "no kernel is recorded"], result["tables"][0]["rows"])
        told = result["summary"]
        self.assertIn("version 130001; the program ended with status 0", told[0])
        self.assertIn("have 1.000 of the program's own time before it and 2.400 of the program's own time after it; after it 2 "
                      "windows, 1 iterations with kernel records, 4 records without times and 1 stops for counters", told[2])
        untimed = experiments.told_of(False, plain, own, before, dict(after, found_ms=None), "", 0)["summary"]
        self.assertIn("have 1.000 of the program's own time before it and no times after it", untimed[2])
        told = experiments.told_of(True, plain, own, before, None, "plain: the program ended", -11)["summary"]
        self.assertIn("signal SIGSEGV", told[0])
        self.assertIn("finalised CUPTI: the program was lost after it: plain: the program ended", told[2])

    def test_who_is_refused_counters_is_told_where(self):
        self.assertIsNone(experiments.refusal({"availability": "0", "enable": "0", "configure": "0", "start": "0"}))
        with tempfile.TemporaryDirectory() as folder:
            machine = machines.Machine(BUILD, folder, True)
            for setting, expected in (("no_privileges", "availability: 35 CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
                                      ("hardware_busy", "start: 26 CUPTI_ERROR_HARDWARE_BUSY")):
                answers = machine.probe("permission", env={"SWGPU_SET": f"cupti.{setting}=1"})
                self.assertEqual(experiments.refusal(answers), expected)

    def test_a_fixed_addition_is_told_from_a_factor(self):
        offset, slope = line_through([(x, 3000 + 1.5 * x) for x in (100.0, 200.0, 800.0)])
        self.assertAlmostEqual(offset, 3000)
        self.assertAlmostEqual(slope, 1.5)

    def test_the_report_names_what_is_missing_and_what_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            part = results.Part(folder, "a", "Questions")
            part.data["machine"] = {"gpu": "H"}
            part.record("one", "done", 1, {"summary": ["fine"], "tables": [{"columns": ["x"], "rows": [[1.5], [None]]}]})
            part.record("two", "failed", 1, error="line 1\ncuptiSubscribe gave 39")
            text = results.markdown([results.Part(folder, "a", "")], {"a": ["one", "two", "three"]})
        for expected in ("* fine", "| 1.5 |", "| - |", "**failed**", "    cuptiSubscribe gave 39", "### three\n\nnot measured"):
            self.assertIn(expected, text)

    def test_another_try_that_fails_leaves_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            part = results.Part(folder, "a", "Questions")
            part.record("one", "done", 1, {"summary": ["fine"], "raw": {"x": float("nan"), "y": object()}})
            part.record("one", "failed", 1, error="the GPU fell off the bus")
            again = results.Part(folder, "a", "")
            self.assertTrue(again.finished("one"))
            self.assertIsNone(again.data["steps"]["one"]["result"]["raw"]["x"])  # JSON has no such number
            text = results.markdown([again], {"a": ["one"]})
        self.assertIn("* fine", text)
        self.assertIn("the GPU fell off the bus", text)

    def test_a_step_that_this_calls_time_cut_short_did_not_fail(self):
        def hang(_):
            raise machines.StepFailed("ran past its limit")
        with tempfile.TemporaryDirectory() as folder:
            part = results.Part(folder, "a", "Questions")
            machine = machines.Machine(BUILD, os.path.join(folder, "work"), True)
            self.assertEqual(driver.run_step(part, "one", 0.1, hang, machine, whole=False), "left for the next call")
            self.assertEqual(part.data["steps"], {})
            self.assertEqual(driver.run_step(part, "one", 0.1, hang, machine, whole=True), "failed")

    def test_details_beyond_the_room_are_named_for_good(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as first:
            for name, size in (("small", 10), ("large", results.DETAILS_BYTES)):
                with open(os.path.join(first, name), "wb") as file:
                    file.write(b"x" * size)
            results.Details(folder, first).keep()
            with tempfile.TemporaryDirectory() as second:
                details = results.Details(folder, second)
                self.assertIsNone(details.open())
                self.assertEqual(os.listdir(second), ["small"])
                details.keep()
            with tarfile.open(os.path.join(folder, "details.tar.gz")) as archive:
                self.assertEqual(sorted(archive.getnames()), ["LEFT_OUT", "small"])
                self.assertIn(b"large", archive.extractfile("LEFT_OUT").read())

    def test_a_daemon_that_keeps_the_output_open_holds_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = machines.Machine(BUILD, folder, True)
            begin = time.monotonic()
            out = machine.run(["sh", "-c", "setsid sleep 20 & echo done"], env=dict(os.environ), limit=15)
            self.assertEqual(out.text, "done\n")
            self.assertLess(time.monotonic() - begin, 15)

    def test_a_program_that_never_ends_is_ended_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = machines.Machine(BUILD, folder, True)
            marker = f"{os.getpid()}{time.monotonic_ns()}"
            with self.assertRaisesRegex(machines.StepFailed, "ran past its limit(.|\n)*begun"):
                machine.run(["sh", "-c", f"echo begun; sleep 60 {marker} & wait; : {marker}"], limit=0.3, env=dict(os.environ))
            time.sleep(0.2)
            left = subprocess.run(["pgrep", "-f", f"sleep 60 {marker}"], capture_output=True, text=True, check=False)
            self.assertEqual(left.stdout, "")


def gpu(*arguments, expected=0):
    done = subprocess.run([sys.executable, os.path.join(HERE, "gpu.py"), "--bundle", BUILD, *arguments], capture_output=True,
                          text=True, check=False, timeout=110)
    if expected is not None and done.returncode != expected:
        raise AssertionError(f"status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def part_of(folder, letter):
    with open(os.path.join(folder, f"{letter}.json"), encoding="utf-8") as file:
        return json.load(file)


def running(mark, words):
    """Command lines, with `words`, of the processes that have the mark in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = f"GPU_TEST_MARK={mark}".encode() in file.read()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marked and words in line:
            found.append(line)
    return found


class Driver(unittest.TestCase):
    def test_finished_steps_are_kept_and_others_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.environment", "a.nesting", "--software", "--out", folder)
            before = part_of(folder, "a")["steps"]
            # What failed is tried again by the next call, what is done is not.
            part = results.Part(folder, "a", "")
            part.record("decode_thread", "failed", 1, error="on purpose")
            done = gpu("a.environment", "a.decode_thread", "a.second_process", "--software", "--out", folder)
            self.assertIn("2 done; 1 kept", done.stdout)
            after = part_of(folder, "a")["steps"]
            self.assertEqual(before["environment"], after["environment"])
            self.assertEqual(after["decode_thread"]["status"], "done")
            done = gpu("a.environment", "--software", "--out", folder, "--again", "a.environment")
            self.assertIn("1 done", done.stdout)
            self.assertEqual(sorted(os.listdir(folder)), ["a.json", "details.tar.gz", "report.md"])

    def test_what_does_not_fit_into_the_time_is_left_for_the_next_call(self):
        with tempfile.TemporaryDirectory() as folder:
            done = gpu("a.environment", "a.nesting", "--software", "--out", folder, "--limit", "0")
            self.assertIn("2 left for the next call", done.stdout)
            self.assertIn(f"call again to go on: gpu a.environment a.nesting --out {folder} --software", done.stdout)
            self.assertIn("1 done", gpu("a.environment", "--software", "--out", folder).stdout)

    def test_without_a_gpu_it_says_so(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU")
        with tempfile.TemporaryDirectory() as folder:
            done = gpu("a", "--out", os.path.join(folder, "out"), expected=3)
            self.assertIn("nothing was measured", done.stderr)
            self.assertFalse(os.path.exists(os.path.join(folder, "out")))
        environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        real = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64")
        if os.path.exists(os.path.join(real, "libcupti.so.13")):
            done = subprocess.run([os.path.join(BUILD, "bin", "seqpoint_gpu_probe"), "range"], capture_output=True, text=True,
                                  env={**environment, "LD_LIBRARY_PATH": real}, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertIn("no GPU", done.stderr)

    def test_what_cannot_be_read_is_set_aside(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.environment", "--software", "--out", folder)
            with open(os.path.join(folder, "b.json"), "w", encoding="utf-8") as file:
                file.write('{"version": 1, "steps": {"pa')
            with open(os.path.join(folder, "c.json"), "wb") as file:
                file.write(b"\xff\xfe[]")
            with open(os.path.join(folder, "details.tar.gz"), "r+b") as file:
                file.truncate(20)
            done = gpu("a.environment", "a.nesting", "--software", "--out", folder)
            self.assertIn("1 done; 1 kept", done.stdout)
            self.assertIn("b.json is not used", done.stderr)
            with tarfile.open(os.path.join(folder, "details.tar.gz")) as archive:
                self.assertEqual(sorted(archive.getnames()),
                                 ["unreadable/b.json", "unreadable/c.json", "unreadable/details.tar.gz"])

    def test_one_call_at_a_time_writes_to_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            lock = driver.open_folder(folder)
            self.assertIn("another call writes to", gpu("a.environment", "--software", "--out", folder, expected=1).stderr)
            os.close(lock)
            gpu("a.environment", "--software", "--out", folder)

    def test_a_folder_that_cannot_be_written_is_named(self):
        with tempfile.NamedTemporaryFile() as file:
            error = gpu("a.environment", "--software", "--out", file.name, expected=1).stderr
            self.assertIn(f"cannot write results to {file.name}", error)
            self.assertNotIn("Traceback", error)

    def test_a_full_disk_ends_the_call_and_keeps_what_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.environment", "--software", "--out", folder)
            before = part_of(folder, "a")["steps"]["environment"]
            done = subprocess.run(["bash", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "-", sys.executable,
                                   os.path.join(HERE, "gpu.py"), "--bundle", BUILD, "a.switch", "a.nesting", "--software",
                                   "--out", folder], capture_output=True, text=True, check=False, timeout=50)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("cannot write results to", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual(part_of(folder, "a")["steps"]["environment"], before)

    def test_it_is_called_through_a_link_in_a_folder_with_blanks(self):
        with tempfile.TemporaryDirectory(prefix="with blanks ") as folder:
            link = os.path.join(folder, "a link")
            os.symlink(os.path.join(HERE, "gpu"), link)
            done = subprocess.run([link, "a.environment", "--bundle", BUILD, "--software", "--out", "some results"], cwd=folder,
                                  capture_output=True, text=True, check=False, timeout=50,
                                  env={**os.environ, "SEQPOINT_PYTHON": sys.executable, "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(part_of(os.path.join(folder, "some results"), "a")["steps"]["environment"]["status"], "done")

    def test_ended_in_the_middle_it_leaves_results_and_no_programs(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
            mark = f"{os.getpid()}.{time.monotonic_ns()}"
            with tempfile.TemporaryDirectory() as folder:
                process = subprocess.Popen([sys.executable, os.path.join(HERE, "gpu.py"), "--bundle", BUILD, "--software",
                                            "a.graph_job", "f.gnmt", "--out", folder], stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL, text=True, env={**os.environ, "GPU_TEST_MARK": mark})
                end = time.monotonic() + 40
                while time.monotonic() < end and not running(mark, "seqpoint_workload --model gnmt"):
                    time.sleep(0.05)
                process.send_signal(number)
                process.communicate(timeout=20)
                self.assertEqual(process.returncode, status)
                self.assertEqual(part_of(folder, "a")["steps"]["graph_job"]["status"], "done")
                with tarfile.open(os.path.join(folder, "details.tar.gz")) as archive:
                    self.assertIn("rung-late-cuda/output.log", archive.getnames())
                while time.monotonic() < end and running(mark, "seqpoint_workload"):
                    time.sleep(0.05)
                self.assertEqual(running(mark, "seqpoint_workload"), [])
                self.assertFalse([name for name in os.listdir(folder) if name.endswith(".new")])

    def test_what_matters_most_comes_first(self):
        every = [f"{letter}.{name}" for letter in driver.PARTS for name, _, _ in driver.load_steps(letter)]
        order = [f"{letter}.{name}" for letter, name, _, _ in driver.in_order(driver.choose([]))]
        self.assertEqual(order[:len(driver.ORDER)], driver.ORDER)
        self.assertEqual(sorted(order), sorted(every))
        self.assertEqual([step[1] for step in driver.in_order(driver.choose(["d.soak", "a.switch", "a.captures"]))],
                         ["captures", "switch", "soak"])
        # The table of docs/using/gpu.md has the same steps in the same order; a bundle has no docs.
        page = os.path.join(HERE, "..", "..", "docs", "using", "gpu.md")
        if os.path.exists(page):
            with open(page, encoding="utf-8") as file:
                rows = [line.split("|") for line in file if line.startswith(("| 1 |", "| 2 |", "| 3 |"))]
            self.assertEqual([word.strip("` ") for row in rows for word in row[2].split(",")], driver.ORDER)
        # What goes along to another machine is eight files: one for each part, the report and the details.
        self.assertEqual(len(driver.PARTS), 6)

    def test_wrong_words_are_refused(self):
        self.assertIn("no part \"x\"", gpu("x", expected=1).stderr)
        self.assertIn("no step \"a.x\"", gpu("a.x", expected=1).stderr)


class Probes(unittest.TestCase):
    """What the probes find of the software GPU, whose answers are known (docs/internals/software-gpu.md)."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            names = ["environment", "switch", "nesting", "copy_clock", "launch", "call_time", "range", "range_activity",
                     "second_process", "metric_sets", "decode_thread", "graph_range", "sampling", "graph_records",
                     "late_graphs", "first_window", "captures", "other_users", "opcodes", "kernel_ranges"]
            gpu(*[f"a.{name}" for name in names], "--software", "--out", folder)
            cls.steps = {name: entry["result"] for name, entry in part_of(folder, "a")["steps"].items()}

    def test_calls_nest_with_one_id(self):
        for call in self.steps["nesting"]["raw"]["calls"]:
            self.assertTrue(call["driver_nested"] and call["same_correlation_id"], call)

    def test_records_have_the_ids_of_the_callbacks(self):
        records = self.steps["nesting"]["raw"]["records"]
        self.assertEqual([one["call"] for one in records], ["kernel <<<>>>", "cudaMemcpyAsync H2D", "cudaMemcpy D2H",
                                                            "cudaMemsetAsync", "cudaGraphLaunch"])
        for one in records:
            self.assertEqual((one["records"], one["same"]), (1, True), one)

    def test_a_callback_is_not_in_the_time_of_the_call(self):
        self.assertIn("at the beginning of a call is outside of the time of the call's record, at the end outside of it",
                      self.steps["call_time"]["summary"][0])
        more = {row["setting"]: row["launch_ns"]["median"] for row in self.steps["call_time"]["raw"]["settings"]}
        # What the callback takes is in the launch itself, or the question would not have been asked.
        for end in ("beginning", "end"):
            self.assertAlmostEqual(more[f"20 us at the {end}, call recorded"] - more["callback, call recorded"], 20000, delta=500)

    def test_a_watched_launch_costs_what_the_model_says(self):
        more = {(row["setting"], row["threads"]): row["more_ns"] for row in self.steps["launch"]["raw"]["settings"]}
        self.assertAlmostEqual(more["a driver callback", 1], 300, delta=1)
        self.assertAlmostEqual(more["CONCURRENT_KERNEL records", 1], 250, delta=1)
        self.assertAlmostEqual(more["subscribed", 1], 0, delta=1)

    def test_copies_and_kernels_agree_on_the_period(self):
        self.assertLess(self.steps["copy_clock"]["raw"]["sum_difference_share"], 0.001)

    def test_ranges_wait_and_hold_the_work_of_all_threads(self):
        raw = self.steps["range"]["raw"]
        self.assertTrue(raw["start_drains"] and raw["push_drains"] and raw["pop_drains"])
        self.assertAlmostEqual(raw["share_of_other_thread_in_range"], 1, delta=0.05)
        self.assertEqual((raw["start_in_callback"], raw["push_in_callback"]), ("0", "0"))
        self.assertEqual([one["state"] for one in raw["states"]],
                         ["never enabled", "enabled", "enabled, at rest after 30 ranges", "disabled again"])
        for one in raw["states"]:  # the software GPU has no clock that changes
            self.assertAlmostEqual(one["kernel_ns"]["median"] / raw["states"][0]["kernel_ns"]["median"], 1, delta=0.05)
        self.assertIn("while a range is decoded", "".join(row["what"] for row in raw["costs"]))

    def test_what_a_range_adds_to_the_time_of_its_kernels(self):
        # The time of the software GPU's ranges is that between push and pop, so a little more than the kernels'.
        lengths = self.steps["range_activity"]["raw"]["lengths"]
        self.assertEqual([row["times"] for row in lengths], [1, 2, 4, 8, 16])
        for row in lengths:
            self.assertLess(0, row["range_ns"] - row["records_in_the_range_ns"])
            self.assertLess(row["range_ns"] - row["records_in_the_range_ns"], 10000)

    def test_counters_of_a_process_that_rests_are_asked_for(self):
        # Processes of the software GPU have a GPU each.
        rows = self.steps["second_process"]["tables"][0]["rows"]
        self.assertEqual([row[0] for row in rows], ["nobody", "at rest", "disabled"])
        for row in rows:
            self.assertEqual(row[1:], ["0", "0", "0", "0"])

    def test_every_shipped_configuration_is_collected(self):
        rows = self.steps["metric_sets"]["tables"][0]["rows"]
        self.assertEqual({row[0].split(" ")[0] for row in rows},
                         {"utilisation", "flops", "memory", "tensor", "cache", "links", "speed-of-light"})
        for row in rows:
            self.assertTrue(row[5], row)
        # What belongs to the whole device is not among the counters that one context may use.
        for row in rows:
            self.assertEqual(row[3] == "0", not row[0].startswith("links"), row)

    def test_counters_beside_records_and_in_graphs(self):
        raw = self.steps["range_activity"]["raw"]
        self.assertEqual(raw["kernel_records"], raw["kernel_records_expected"])
        for value in self.steps["graph_range"]["raw"]["values"]:
            self.assertAlmostEqual(value["graph"] / value["eager"], 1, delta=0.1)

    def test_samples_lie_where_the_kernels_were(self):
        for row in self.steps["sampling"]["raw"]["intervals"][:3]:
            self.assertEqual((row["set_config"], row["start"]), ("0", "0"))
            self.assertGreater(row["samples"], 50)
            self.assertLess(abs(row["first_sample_minus_record_start_ns"]["median"]), 1.5 * row["interval_ns"])
            self.assertGreater(row["share_of_instructions_near_bursts"], 0.9)
        self.assertEqual([one["state"] for one in self.steps["sampling"]["raw"]["states"]],
                         ["not enabled", "enabled", "started", "stopped", "disabled again"])

    def test_whole_graphs_leave_records_only_when_enabled_before(self):
        # As seen on a GPU: kernel records of an older graph come, and under whole-graph records its launch crashes.
        cases = {c["enabled"]: c.get("crash") or (c["kernel_records_per_launch"], c["graph_records_per_launch"])
                 for c in self.steps["graph_records"]["raw"]["cases"]}
        self.assertEqual(cases["kernel, from instantiation on"], (100, 0))
        self.assertEqual(cases["kernel, at launch alone"], (100, 0))
        self.assertEqual(cases["graph, from instantiation on"], (0, 1))
        self.assertEqual(cases["graph, at launch alone"], "signal SIGSEGV")
        self.assertIn("kernels 100 records; whole graphs signal SIGSEGV", self.steps["graph_records"]["summary"][0])

    def test_graphs_between_windows_have_records_where_the_kind_stays_on(self):
        late = {}
        for one in self.steps["late_graphs"]["raw"]:
            for window in one["windows"]:
                if window["graph"] == "between windows":
                    late.setdefault(one["kinds"], set()).add((window["graph_records_per_launch"],
                                                              window["kernel_records_per_launch"]))
                elif window["window"] == 1:
                    self.assertEqual(window["ids_of_the_calls_share"], 1)
        self.assertEqual(late, {"kernel in windows": {(0, 20)}, "graph always, kernel in windows": {(1, 0)},
                                "graph always": {(1, 0)}})

    def test_programs_that_use_cupti_themselves_lose_nothing(self):
        rows = {row[0]: row[1:] for row in self.steps["other_users"]["tables"][0]["rows"]}
        self.assertEqual(rows["activity records"], ["500 of 500 records"] * 3 + [True])
        self.assertEqual(rows["counter ranges"], ["0"] * 3 + [True])
        self.assertEqual(rows["PM sampling"], ["0, 0, 0, 0"] * 3 + [True])

    def test_windows_among_many_modules(self):
        for one in self.steps["first_window"]["raw"]:
            self.assertEqual([window["records"] for window in one["windows"]], [one["modules"] + 100] * 3)
        self.assertEqual([one["modules"] for one in self.steps["first_window"]["raw"]], [0, 200])

    def test_calls_that_end_a_capture_are_found(self):
        survives = {}
        for row in self.steps["captures"]["tables"][0]["rows"]:
            survives.setdefault(row[0], []).append(row[5])
        self.assertEqual(survives["nothing"], [True] * 3)
        self.assertEqual(survives["cuptiActivityFlushAll"], [True] * 3)
        # It synchronises the context, which no capture survives, whatever the modes.
        self.assertEqual(survives["cudaDeviceSynchronize"], [False] * 3)
        self.assertEqual(survives["cuptiRangeProfilerDecodeData"], [False] * 3)
        self.assertIn("cuptiRangeProfilerDecodeData (global)", self.steps["captures"]["summary"][0])

    def test_operations_are_counted_once(self):
        # The software GPU knows operations of the CUDA cores as FP32, and those of the tensor pipes as BF16.
        opcodes = self.steps["opcodes"]
        self.assertIn("operations counted are those of the kernels", opcodes["summary"])
        self.assertIn("beside copy records: all were collected, and every copy left its record", opcodes["summary"])
        self.assertEqual(len(opcodes["tables"][0]["rows"]), 8)
        for row in opcodes["tables"][0]["rows"]:
            self.assertEqual(row[5].count("of its instructions"), 1, row)

    def test_automatic_ranges_are_the_launches(self):
        raw = self.steps["kernel_ranges"]["raw"]
        for case in raw["cases"]:
            self.assertEqual((case["result"], case["ranges"], case["in_order"]), ("0", 40, True), case)
        self.assertEqual(raw["graph"]["ranges"], raw["graph"]["nodes"])
        self.assertEqual([(room["ranges"], room["dropped"]) for room in raw["rooms"]], [(2000, 0), (2000, 100), (0, 0)])
        self.assertGreater(raw["launch_in_range_ns"], raw["launch_alone_ns"])

    def test_every_iterations_counters(self):
        # In a process of its own: the libraries are found when they are loaded.
        code = f"""
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
ranges = ctypes.CDLL({os.path.join(BUILD, "lib", "libseqpoint_gpu_ranges.so")!r})
assert runtime.cudaFree(None) == 0
memory = ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
assert ranges.gpu_ranges_begin(b"gpu__time_duration.sum,dram__bytes_write.sum") == 0
for i in range(1100):  # more than one counter data image holds
    assert ranges.gpu_ranges_push() == 0
    runtime.cudaMemset(memory, 0, ctypes.c_size_t(1 << 20))
    assert ranges.gpu_ranges_pop() == 0
assert ranges.gpu_ranges_end(b"every.csv") == 0
"""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", code], check=True, cwd=folder,
                           env={**os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "softgpu")})
            every = counters.read_counters(os.path.join(folder, "every.csv"))
        self.assertEqual(len(every["gpu__time_duration.sum"]), 1100)
        self.assertGreater(min(every["gpu__time_duration.sum"]), 0)


class Parts(unittest.TestCase):
    def test_a_workload_against_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("f.gnmt", "--software", "--out", folder)
            gnmt = part_of(folder, "f")["steps"]["gnmt"]["result"]
        # An A100 stands for the GPU, the model is of an H200: what memory limits is about half as long there.
        ratios = {row[0]: row[4] for row in gnmt["tables"][1]["rows"]}
        self.assertLess(ratios["gemm_tf32"], 0.7)
        self.assertGreater(ratios["gemm_tf32"], 0.3)
        self.assertEqual(gnmt["comparison"]["boundaries"]["exact_share"], 1)

    def test_counters_of_a_few_and_of_all_iterations(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("c.workload", "c.ncu", "--software", "--out", folder)
            steps = part_of(folder, "c")["steps"]
        rows = steps["workload"]["result"]["tables"][0]["rows"]
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertTrue(row[6], row)
        for row in steps["ncu"]["result"]["tables"][0]["rows"]:
            if row[5] is not None:
                self.assertAlmostEqual(row[2] / row[5], 1, delta=0.02)

    def test_graphs_that_come_late(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.graph_job", "a.graph_job_torch", "a.graph_job_compile", "--software", "--out", folder)
            steps = part_of(folder, "a")["steps"]
        job = steps["graph_job"]["result"]
        self.assertIn("0 captures failed", job["summary"][0])
        self.assertIn("ended with status 0", job["summary"][0])
        early, late = job["tables"][0]["rows"]
        self.assertGreater(early[1], 0)
        self.assertGreater(late[1], 0)
        for name in ("graph_job_torch", "graph_job_compile"):
            self.assertEqual(steps[name]["status"], "skipped")
            self.assertIn("PyTorch", steps[name]["error"])

    def test_another_profiler_between_two_halves(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.cuda_profiler_teardown", "--software", "--out", folder)
            result = part_of(folder, "a")["steps"]["cuda_profiler_teardown"]["result"]
        before, after = result["raw"]["halves"]
        self.assertIn("version 130001; the program ended with status 0", result["summary"][0])
        self.assertTrue(result["summary"][1].endswith(": complete"), result["summary"][1])
        self.assertGreater(len(before["with_kernels"]), 0)
        # The clock that the other one has set, which counts ticks, is not ours: times are as they were.
        for half in (before, after):
            self.assertGreater(half["found"], 10)
        self.assertAlmostEqual(after["found_ms"] / before["found_ms"], 1, delta=0.2)
        # This CUPTI gives kernels no times once a clock was set; counters go on after it was ended.
        self.assertGreater(after["windows"], before["windows"])
        self.assertGreater(after["counters"], before["counters"])

    def test_hours_in_minutes(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("d.soak", "--software", "--out", folder)
            soak = part_of(folder, "d")["steps"]["soak"]["result"]
        rows = {row[0]: row for row in soak["tables"][0]["rows"]}
        self.assertEqual(list(rows), list(experiments.SOAK))
        for name, samples in soak["raw"]["samples"].items():
            self.assertEqual(len(samples), 3)
            for one in samples:
                self.assertGreater(one["ms"], 0)
                self.assertGreater(one["resident_mib"], 1)
                # A flush in a program without CUPTI would be the beginning of its use.
                self.assertEqual(one["flush_ms"] is not None, name in experiments.FLUSHES)
        self.assertEqual(soak["raw"]["second_process"]["start"], "0")
        self.assertEqual(sum("decides" in message for message in soak["summary"]), 3)

    def test_a_roofline_of_kernels_known_by_hand(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu("c.roofline", "c.torch_flops", "--software", "--out", folder)
            steps = part_of(folder, "c")["steps"]
        self.assertIn("operations and bytes are those by hand, and nothing is above its roof",
                      steps["roofline"]["result"]["summary"])
        self.assertEqual(len(steps["roofline"]["result"]["tables"][0]["rows"]), 9)
        self.assertEqual(steps["torch_flops"]["status"], "skipped")
        self.assertIn("PyTorch", steps["torch_flops"]["error"])


def script(name, *arguments):
    out = subprocess.run([sys.executable, os.path.join(HERE, "torch", name), "--device", "cpu", "--tiny", *arguments],
                         capture_output=True, text=True, check=False, timeout=50)
    if out.returncode != 0:
        raise AssertionError(f"{name}: {out.stderr}")
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


class Torch(unittest.TestCase):
    """The PyTorch scripts at a size for a CPU."""

    def test_trainings_log_their_iterations(self):
        for name in ("ds2", "transformer"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "log.csv")
                answer = script(f"{name}.py", "--iterations", "4", "--log", path)[0]
                log = compare.read_log(path)
            self.assertEqual((answer["iterations"], len(log)), (4, 4))
            self.assertAlmostEqual(sum(row["duration_ns"] for row in log) / 1e6, answer["train_ms"], places=2)
            for row, after in zip(log, log[1:]):
                self.assertLess(row["begin_ns"], row["forward_ns"])
                self.assertLess(row["forward_ns"], row["backward_ns"])
                self.assertLess(row["backward_ns"], row["step_ns"])
                self.assertLess(row["step_ns"], after["begin_ns"])
            self.assertGreater(len({row["lengths"] for row in log}), 1)

    def test_evaluation_is_told_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.csv")
            script("gnmt.py", "--iterations", "4", "--eval-every", "2", "--log", path)
            self.assertEqual([row["phase"] for row in compare.read_log(path)],
                             ([""] * 2 + ["evaluation"] * 5) * 2)

    def test_pairs_are_measured_and_traced(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = script("whatif.py", "--pairs", "bf16,adam_fused,workers", "--traces", folder)
            rows, failed = whatif.lay_out(lines)
            self.assertEqual(failed, [])
            self.assertEqual([row[0] for row in rows if row[3]], ["bf16", "workers"])
            self.assertIn("bf16.before.json.gz", os.listdir(folder))

    def test_the_ladder_runs_blocks(self):
        process = subprocess.Popen([sys.executable, os.path.join(HERE, "torch", "overhead.py"), "--device", "cpu", "--tiny"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        out, _ = process.communicate("block 5\nkineto 2\nend\n", timeout=50)
        lines = out.splitlines()
        self.assertEqual(lines[0], "ready")
        for line in lines[1:3]:
            self.assertGreater(json.loads(line)["ms"], 0)

    def test_products_are_counted_by_every_configuration(self):
        # The CPU's products are not the software GPU's: a row each, of nothing.
        done = subprocess.run([sys.executable, os.path.join(HERE, "torch", "flops.py"), "--device", "cpu", "--tiny", "--ranges",
                               os.path.join(BUILD, "lib", "libseqpoint_gpu_ranges.so"), "--configs",
                               "sm__sass_thread_inst_executed_op_ffma_pred_on.sum:gpu__time_duration.sum,"
                               "sm__ops_path_tensor_src_fp64.sum"], capture_output=True, text=True, check=False,
                              env={**os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "softgpu")}, timeout=50)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([len(line["products"]) for line in lines], [4, 4])
        for line in lines:
            for product in line["products"]:
                product["values"][-1] = product["operations"] / 2
        rows, off = counters.lay_out_products(lines, operations_of)
        # Half of the products as fused multiply-adds, and half on the tensor pipes: one and a half.
        self.assertEqual([row[3] for row in rows], [1.5] * 4)
        self.assertEqual(len(off), 4)

    def test_a_users_own_profiler_between_two_halves(self):
        if not os.path.isdir(os.path.join(BUILD, "share", "seqpoint", "python")):
            self.skipTest("this build has no PyTorch adapter in share/seqpoint/python")
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.torch_profiler", "--software", "--out", folder)
            result = part_of(folder, "a")["steps"]["torch_profiler"]["result"]
        self.assertIn("ended with status 0", result["summary"][0])
        self.assertIn("96 operations alone", result["summary"][1])
        self.assertTrue(result["summary"][1].endswith(": complete"), result["summary"][1])
        self.assertIn("decides whether times and records are right", result["summary"][2])
        for half in result["raw"]["halves"]:
            self.assertGreater(half["found"], 0)

    def test_what_the_adapter_costs_by_part(self):
        answer = script("adapter.py")[0]
        parts = [block["without"] for block in answer["blocks"]]
        self.assertEqual(parts[0], "nothing")
        self.assertEqual(parts[::2], parts[1::2])
        self.assertTrue(all(block["ms"] > 0 for block in answer["blocks"]))
        self.assertFalse(answer["facts"]["adapter"])

    def test_which_cupti_pytorch_has(self):
        answer = script("cupti.py")[0]
        self.assertEqual(answer["mapped_by_import"], answer["cupti"] is not None)
        self.assertIn("libtorch_cpu.so", [one["file"] for one in answer["libraries"]])
        with tempfile.TemporaryDirectory() as folder:
            gpu("a.torch_cupti", "--software", "--out", folder)
            self.assertIn("linked statically", part_of(folder, "a")["steps"]["torch_cupti"]["result"]["summary"][1])

    def test_a_library_that_holds_cupti_is_found(self):
        code = ("import sys; sys.path.insert(0, %r); import cupti; print(cupti.holds_cupti(%r), cupti.holds_cupti(%r))" %
                (os.path.join(HERE, "torch"), os.path.join(BUILD, "softgpu", "libcupti.so.13"),
                 os.path.join(BUILD, "softgpu", "libcudart.so.13")))
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertEqual(out.strip(), "True False")

    def test_lengths_with_graphs_of_their_own(self):
        process = subprocess.Popen([sys.executable, os.path.join(HERE, "torch", "late_graphs.py"), "--device", "cpu", "--tiny"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        out, _ = process.communicate("block 20\nblock 41\nend\n", timeout=50)
        answers = [json.loads(line) for line in out.splitlines()[1:]]
        self.assertEqual([sorted(one["captured_lengths"]) for one in answers], [[16, 24, 32, 40], [42, 44, 46]])
        self.assertEqual([one["captures_failed"] for one in answers], [0, 0])

    def test_a_training_is_laid_beside_its_log(self):
        if not os.path.isdir(os.path.join(BUILD, "share", "seqpoint", "python")):
            self.skipTest("this build has no PyTorch adapter in share/seqpoint/python")
        with tempfile.TemporaryDirectory() as folder:
            gpu("b.gnmt_adapter", "--software", "--out", folder)
            result = part_of(folder, "b")["steps"]["gnmt_adapter"]["result"]["comparison"]
        self.assertEqual(result["boundaries"]["near_share"], 1)
        self.assertEqual(result["lengths"]["is_share"], 1)
        self.assertLess(abs(result["times"]["sum_error"]), 0.05)


def main():
    global BUILD
    BUILD = os.path.realpath(sys.argv.pop(1))
    if any(word.startswith("Torch") for word in sys.argv):
        try:
            import torch  # noqa: F401
        except ImportError:
            print(f"skipped: {sys.executable} has no PyTorch (Debian: python3-torch)")
            return SKIPPED
    result = unittest.main(exit=False, verbosity=2).result
    if result.skipped and len(result.skipped) == result.testsRun:
        return SKIPPED  # the reason was printed
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
