"""The loads of placements, recounted from the problem's file and the written split alone.

Shares no code with the product: another language, another reader, the definition of docs/using/placement.md
edge by edge. usage: recount_test.py BUILD_FOLDER SHARED_DATA"""

import collections
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
SHARED = os.environ.get("SEQPOINT_SHARED_DATA", sys.argv[2])

SMALL = {
    "maxSizePerFPGA": 30, "maxFPGAs": 2, "maxCPUs": 1,
    "nodes": [
        {"id": i, "supportedOnFpga": i != 4, "isBackwardNode": i > 4, "cpuLatency": 7 + i,
         "fpgaLatency": 1 + i / 4, "size": 5, "colorClass": i if i < 5 else 9 - i}
        for i in range(10)],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.25 * (i % 3)} for i in range(9)] +
             [{"sourceId": 0, "destId": 3, "cost": 0}]}


def recount(problem, split):
    """Loads of accelerators and of cores; a list of rules that are broken."""
    device = {}
    broken = []
    for kind in ("fpgas", "cpus"):
        for number, entry in enumerate(split[kind]):
            for operator in entry["nodes"]:
                if operator in device:
                    broken.append(f"{operator} is on two devices")
                device[operator] = (kind, number)
    load = collections.Counter({(kind, number): 0.0 for kind in ("fpgas", "cpus")
                                for number in range(len(split[kind]))})
    size = collections.Counter()
    colors = collections.defaultdict(set)
    for node in problem["nodes"]:
        if node["id"] not in device:
            broken.append(f"{node['id']} is nowhere")
            continue
        kind, number = where = device[node["id"]]
        load[where] += node["fpgaLatency" if kind == "fpgas" else "cpuLatency"]
        size[where] += node.get("size", 0)
        if "colorClass" in node:
            colors[node["colorClass"]].add(where)
        if kind == "fpgas" and node["supportedOnFpga"] in (False, 0, "False"):
            broken.append(f"{node['id']} is not supported there")
    broken += [f"color {color} is on {len(places)} devices"
               for color, places in colors.items() if len(places) > 1]
    broken += [f"{where} is too full" for where, bytes_ in size.items()
               if where[0] == "fpgas" and bytes_ > problem["maxSizePerFPGA"]]
    paid = set()
    for edge in problem["edges"]:
        ends = {device[edge["sourceId"]], device[edge["destId"]]}
        for where in ends:
            if len(ends) > 1 and where[0] == "fpgas" and (edge["sourceId"], where) not in paid:
                paid.add((edge["sourceId"], where))
                load[where] += edge["cost"]
    return load, broken


class Recount(unittest.TestCase):
    def check(self, path, *options):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "split.json")
            run = subprocess.run([os.path.join(BUILD, "bin", "seqpoint-place"), path, "--json", "-o",
                                  out, "--threads", "1", *options], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            answer = json.loads(run.stdout)
            with open(out) as file:
                split = json.load(file)
        with open(path) as file:
            problem = json.load(file)
        load, broken = recount(problem, split)
        self.assertEqual(broken, [], path)
        self.assertAlmostEqual(max(load.values()), answer["value"], delta=1e-9 * answer["value"])
        self.assertLessEqual(answer["lower_bound"], answer["value"] * (1 + 1e-9))
        told = [device["load"] for device in answer["devices"]]
        self.assertEqual(len(told), len(load))
        for mine, theirs in zip(sorted(load.values()), sorted(told)):
            self.assertAlmostEqual(mine, theirs, delta=1e-9 * answer["value"])
        for kind in ("fpgas", "cpus"):
            for number, entry in enumerate(split[kind]):
                self.assertAlmostEqual(entry["load"], load[kind, number],
                                       delta=1e-6 * answer["value"])

    def test_a_small_problem(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(SMALL, file)
            file.flush()
            self.check(file.name)
            self.check(file.name, "--any")

    def test_published_problems(self):
        files = sorted(glob.glob(os.path.join(SHARED, "placement", "throughput", "*", "*.json")))
        if not files:
            self.skipTest(f"no published problems: {SHARED}/placement is not there")
        for path in files:
            with self.subTest(path):
                self.check(path)

    def test_published_problems_without_contiguity(self):
        path = os.path.join(SHARED, "placement", "throughput", "OperatorGraphs",
                            "bert_l-3_inference.json")
        if not os.path.exists(path):
            self.skipTest(f"no published problems: {SHARED}/placement is not there")
        self.check(path, "--any")


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    skipped_all = result.wasSuccessful() and len(result.skipped) == result.testsRun
    sys.exit(77 if skipped_all else 0 if result.wasSuccessful() else 1)
