"""The manifests and the chart. usage: kubernetes_test.py BUILD DEPLOY CASE

Schema: every field of deploy/kubernetes is one that Kubernetes knows, with a value of its type, and
none that it requires is missing. The types are those of Kubernetes' JavaScript client, which are
generated from Kubernetes' OpenAPI document; `./dev kubernetes` fetches them.
Chart: deploy/helm renders to deploy/kubernetes. Go's templates and Sprig render it, not Helm.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from certificate import with_files

BUILD, DEPLOY = sys.argv[1], sys.argv[2]
TYPES = os.path.join(BUILD, "..", "kubernetes-client", "package", "dist", "gen", "models")
MODELS = {  # by apiVersion and kind
    ("v1", "ConfigMap"): "V1ConfigMap", ("v1", "Service"): "V1Service",
    ("v1", "ServiceAccount"): "V1ServiceAccount", ("apps/v1", "DaemonSet"): "V1DaemonSet",
    ("apps/v1", "StatefulSet"): "V1StatefulSet", ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("batch/v1", "Job"): "V1Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy"}
BUILT = set()
PLAIN = {"string": str, "number": (int, float), "boolean": bool, "IntOrString": (int, str)}

try:
    import yaml
except ImportError:
    print("skipped: Python's yaml is not there; apt-get install python3-yaml")
    sys.exit(77)


def documents(name):
    with open(os.path.join(DEPLOY, "kubernetes", name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def all_documents():
    return [one for name in sorted(os.listdir(os.path.join(DEPLOY, "kubernetes"))) for one in documents(name)]


def fields_of(model, read={}):
    """name: (type, required)"""
    if model not in read:
        with open(os.path.join(TYPES, f"{model}.d.ts"), encoding="utf-8") as file:
            text = re.sub(r"\{\s+\[key: string\]: (.+?);\s+\}", r"{ [key: string]: \1; }", file.read())
        # A word that JavaScript has for itself ("from") begins with "_".
        read[model] = {name.lstrip("_"): (kind, optional != "?") for name, optional, kind in
                       re.findall(r"^    '([^']+)'(\??): (.+?);$", text, re.M)}
    return read[model]


def problems(value, kind, where):
    """What is wrong with a value that should be of a type."""
    array = re.fullmatch(r"Array<(.+)>", kind)
    table = re.fullmatch(r"\{ ?\[key: string\]: (.+?);? ?\}", kind)
    if array:
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [one for i, item in enumerate(value) for one in problems(item, array[1], f"{where}[{i}]")]
    if table:
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no table"]
        return [one for key, item in value.items() for one in problems(item, table[1], f"{where}.{key}")]
    if kind in PLAIN:
        fits = isinstance(value, PLAIN[kind]) and (kind == "boolean" or not isinstance(value, bool))
        return [] if fits else [f"{where}: {value!r} is no {kind}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no {kind}"]
    fields = fields_of(kind)
    wrong = [f"{where}: {kind} has no field {name}" for name in value if name not in fields]
    wrong += [f"{where}: {kind} needs the field {name}"
              for name, (_, required) in fields.items() if required and name not in value]
    return wrong + [one for name, item in value.items() if name in fields
                    for one in problems(item, fields[name][0], f"{where}.{name}")]


class Schema(unittest.TestCase):
    def judge(self, document):
        return problems(document, MODELS[document["apiVersion"], document["kind"]],
                        f"{document['kind']} {document['metadata']['name']}")

    def runTest(self):
        if not os.path.isdir(TYPES):
            self.skipTest("Kubernetes' types are not there; ./dev kubernetes fetches them")
        found = all_documents()
        self.assertEqual({one["kind"] for one in found}, {kind for _, kind in MODELS})
        for document in found:
            self.assertEqual(self.judge(document), [])
        # The check itself: what is wrong is found.
        (node,) = [one for one in documents("node.yaml") if one["kind"] == "DaemonSet"]
        container = node["spec"]["template"]["spec"]["containers"][0]
        container["imagePolicy"] = "Always"
        container["ports"][0]["containerPort"] = "9464"
        del container["name"]
        node["spec"]["template"]["spec"]["hostNetwork"] = "no"
        self.assertEqual(len(self.judge(node)), 4, self.judge(node))


class References(unittest.TestCase):
    """What a manifest names in another is there, and the settings are such as the daemon takes."""

    def runTest(self):
        found = all_documents()
        names = {(one["kind"], one["metadata"]["name"]) for one in found}
        for document in found:
            if document["kind"] not in ("DaemonSet", "StatefulSet", "Job"):
                continue
            template = document["spec"]["template"]
            pod = template["spec"]
            if document["kind"] == "StatefulSet":
                self.assertIn(("Service", document["spec"]["serviceName"]), names)
            if document["kind"] != "Job":
                self.assertEqual(document["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
                self.assertIn(("ServiceAccount", pod["serviceAccountName"]), names)
                self.assertFalse(pod["automountServiceAccountToken"])
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            for volume in volumes.values():
                if "configMap" in volume:
                    self.assertIn(("ConfigMap", volume["configMap"]["name"]), names)
            for container in pod.get("initContainers", []) + pod["containers"]:
                self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
                ports = {port["name"] for port in container.get("ports", [])}
                for probe in ("livenessProbe", "readinessProbe"):
                    if probe in container:
                        self.assertIn(container[probe]["httpGet"]["port"], ports)
                if container["image"].startswith("seqpoint-"):
                    security = container["securityContext"]
                    self.assertEqual(security["capabilities"]["drop"], ["ALL"])
                    self.assertTrue(security["readOnlyRootFilesystem"])
                    self.assertFalse(security["allowPrivilegeEscalation"])
                    self.assertNotIn("privileged", security)
        if shutil.which("openssl") is None:
            self.skipTest("openssl is not there; apt-get install openssl")
        folder = tempfile.mkdtemp(prefix="seqpoint.")
        self.addCleanup(shutil.rmtree, folder)
        for document in found:
            for name, text in document.get("data", {}).items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(with_files(text, folder))
                checked = subprocess.run([f"{BUILD}/bin/seqpointd", "--config", file.name, "--check-config"],
                                         capture_output=True, text=True, check=False)
                self.assertEqual(checked.returncode, 0, checked.stderr)


class Chart(unittest.TestCase):
    def runTest(self):
        if shutil.which("go") is None or not os.path.isdir("/usr/share/gocode/src/github.com/Masterminds/sprig"):
            self.skipTest("Go and Sprig are not there; apt-get install golang-go "
                          "golang-github-masterminds-sprig-dev golang-gopkg-yaml.v3-dev")
        for name in ("node.yaml", "hub.yaml"):
            self.assertEqual(list(yaml.safe_load_all(render(name))), documents(name),
                             "./dev kubernetes --write renders the chart again")
        three = stateful_set("hub: {replicas: 3}")
        self.assertEqual(three["spec"]["replicas"], 3)
        self.assertEqual(settings_of(three)["SEQPOINTD_PEER_ADDRESS"],
                         "$(POD_NAME).seqpoint-hub-peers.seqpoint.svc:7443")
        alone = stateful_set('hub: {storeSecret: "", storeClaim: hub-store}')
        self.assertEqual(settings_of(alone)["SEQPOINTD_STORE"], "/var/lib/seqpointd/seqpoint.db")
        self.assertNotIn("SEQPOINTD_PEER_ADDRESS", settings_of(alone))
        for values, sentence in (
                ('hub: {replicas: 2, storeSecret: "", storeClaim: hub-store}',
                 "hub.replicas is 2, and several hubs need one PostgreSQL: set hub.storeSecret"),
                ('hub: {storeSecret: ""}', "give one of hub.storeSecret"),
                ("hub: {storeClaim: hub-store}", "give one of hub.storeSecret")):
            with self.assertRaises(subprocess.CalledProcessError) as refused:
                render("hub.yaml", values)
            self.assertIn(sentence, refused.exception.stderr)


def stateful_set(values):
    (found,) = [one for one in yaml.safe_load_all(render("hub.yaml", values)) if one["kind"] == "StatefulSet"]
    return found


def settings_of(workload):
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value") for one in container["env"]}


def render(name, *values):
    program = os.path.join(BUILD, "render_chart")
    if program not in BUILT:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "render_chart", "main.go")
        subprocess.run(["go", "build", "-o", program, source], check=True,
                       env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "",
                            "GOCACHE": os.path.join(BUILD, "gocache")})
        BUILT.add(program)
    return subprocess.run([program, os.path.join(DEPLOY, "helm", "seqpoint"), "seqpoint", name, *values],
                          check=True, capture_output=True, text=True).stdout


def write():
    for name in ("node.yaml", "hub.yaml"):
        with open(os.path.join(DEPLOY, "kubernetes", name), "w", encoding="utf-8") as file:
            file.write("# Rendered from deploy/helm/seqpoint with its values.yaml, in the namespace seqpoint:\n"
                       "# ./dev kubernetes --write\n" + re.sub(r" +$", "", render(name), flags=re.M))


if __name__ == "__main__":
    if sys.argv[3] == "--write":
        sys.exit(write())
    suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[3], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(77 if result.skipped else not result.wasSuccessful())
