"""The words of partitions, recounted from the written matrices and owners alone, and executed.

Shares no code with the product: another language, another reader, the definition of
docs/using/partition.md. usage: recount_test.py BUILD_FOLDER SHARED_DATA"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
SHARED = os.environ.get("SEQPOINT_SHARED_DATA", sys.argv[2])
MPI = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl="self,vader",
           OMPI_MCA_mpi_yield_when_idle="1")


def program(name):
    return os.path.join(BUILD, "bin", name)


def read_layers(folder, neurons, layers):
    """Of each layer: source -> targets, from 0 on."""
    for layer in range(1, layers + 1):
        targets = collections.defaultdict(list)
        with open(os.path.join(folder, f"n{neurons}-l{layer}.tsv")) as file:
            for line in file:
                source, target, _ = line.split()
                targets[int(source) - 1].append(int(target) - 1)
        yield targets


def recount(layers, owners, parts):
    """Words, messages and imbalance of each layer; sends (layer, sender, receiver) -> neurons."""
    words, messages, imbalances, sends = [], [], [], collections.defaultdict(list)
    for layer, targets in enumerate(layers):
        work = [0] * parts
        for source in sorted(targets):
            owner = owners[layer][source]
            consumers = collections.Counter(owners[layer + 1][target] for target in targets[source])
            for part, count in consumers.items():
                work[part] += count
                if part != owner:
                    sends[layer, owner, part].append(source)
        mine = {key: neurons for key, neurons in sends.items() if key[0] == layer}
        words.append(sum(map(len, mine.values())))
        messages.append(len(mine))
        imbalances.append(max(work) * parts / sum(work) - 1)
    return words, messages, imbalances, sends


class Recount(unittest.TestCase):
    def check(self, neurons, layers, parts, *options):
        with tempfile.TemporaryDirectory() as folder:
            network = ["--radixnet", f"{neurons}x{layers}", *options]
            run = subprocess.run([program("seqpoint-partition"), *network, "--parts", str(parts),
                                  "-o", folder, "--write", folder, "--json"],
                                 capture_output=True, text=True, env=MPI)
            self.assertEqual(run.returncode, 0, run.stderr)
            answer = json.loads(run.stdout)
            with open(os.path.join(folder, "owners.txt")) as file:
                owners = [[int(word) for word in line.split()] for line in file]
            self.assertEqual([len(row) for row in owners], [neurons] * (layers + 1))
            words, messages, imbalances, sends = recount(
                read_layers(folder, neurons, layers), owners, parts)
            self.assertEqual([layer["words"] for layer in answer["layers"]], words)
            self.assertEqual([layer["messages"] for layer in answer["layers"]], messages)
            self.assertEqual(answer["words"], sum(words))
            self.assertAlmostEqual(answer["imbalance"], max(imbalances), delta=1e-9)
            self.assertLessEqual(max(imbalances), 0.01)
            by_sender = collections.Counter()
            for (_, sender, _), mine in sends.items():
                by_sender[sender] += len(mine)
            self.assertEqual(answer["largest_sender_words"], max(by_sender.values(), default=0))
            with open(os.path.join(folder, "sends.txt")) as file:
                listed = {}
                for line in file:
                    layer, sender, receiver, *mine = map(int, line.split())
                    listed[layer - 1, sender, receiver] = mine
            self.assertEqual(listed, dict(sends))
            self.assertLess(answer["words"], answer["baselines"]["random"])
            self.execute(folder, network, parts, words, messages)

    def execute(self, folder, network, parts, words, messages):
        """What the ranks send is what was counted, forwards and backwards, in every layer."""
        if subprocess.run(["mpirun", "-n", "2", "true"], env=MPI, capture_output=True).returncode:
            self.skipTest("mpirun cannot start two processes here: mpirun -n 2 true says why")
        figures = os.path.join(folder, "figures.json")
        run = subprocess.run(
            ["mpirun", "-n", str(parts), program("seqpoint-sgd"), *network, "--owners",
             os.path.join(folder, "owners.txt"), "--steps", "2", "--samples", "3", "--json", figures],
            capture_output=True, text=True, env=MPI)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        with open(figures) as file:
            executed = json.load(file)["layers"]
        for direction in ("forward", "backward"):
            self.assertEqual([layer[f"{direction}_words"] for layer in executed], words)
            self.assertEqual([layer[f"{direction}_messages"] for layer in executed], messages)

    def test_generated_networks(self):
        self.check(256, 8, 4, "--seed", "3")
        self.check(64, 3, 4)

    def test_the_published_network(self):
        table = os.path.join(SHARED, "radixnet", "n1024_block_residues_00_09.txt")
        if not os.path.exists(table):
            self.skipTest(f"no published permutations: {SHARED}/radixnet is not there")
        self.check(1024, 12, 8, "--permutations", table)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    skipped_all = result.wasSuccessful() and len(result.skipped) == result.testsRun
    sys.exit(77 if skipped_all else 0 if result.wasSuccessful() else 1)
