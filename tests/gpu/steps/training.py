"""Part b: PyTorch trainings with variable lengths, laid beside their own logs."""
import gzip
import os
import shutil
import sys
import time

import compare
import session
from machine import HERE, Skipped

sys.path.insert(0, os.path.join(HERE, "torch"))
import lengths as corpora  # noqa: E402

MODELS = {"gnmt": ("multi30k", 128, 8), "ds2": ("librispeech", 32, 4), "transformer": ("alpaca", 64, 4)}


def batch_of(machine, model):
    return MODELS[model][2 if machine.software else 1]


def pace(machine):
    """Milliseconds of an iteration of each model, so that an epoch fits the time."""
    machine.need_torch()
    found = {}
    for model in MODELS:
        log = os.path.join(machine.work, f"pace-{model}.csv")
        machine.run([machine.python, machine.torch_script(f"{model}.py"), *session.device(machine), "--iterations",
                     "6" if machine.software else "60", "--log", log], env=machine.environment(cuda=False), limit=60)
        durations = sorted(row["duration_ns"] for row in compare.read_log(log))
        found[model] = sum(durations[:-2]) / len(durations[:-2]) / 1e6  # without the first ones, which search
    return {"summary": [f"{model}: {ms:.2f} ms an iteration" for model, ms in found.items()], "ms": found}


def iterations_for(machine, model, seconds):
    """At 5 % of 3,200 there are enough iterations for a projection to be judged."""
    if machine.software:
        return 80
    return int(max(400, min(3200, seconds * 1e3 / machine.result("b", "pace")["ms"][model])))


def adapter_there(machine):
    return os.path.isdir(os.path.join(machine.bundle, "share", "seqpoint", "python"))


def keep_trace(watched):
    """The traced iterations as Chrome trace events, packed, for fixtures."""
    path = os.path.join(watched.folder, "traced.json")
    watched.ask("export", watched.name, "--chrome", path, check=False)
    if os.path.exists(path):
        with open(path, "rb") as plain, gzip.open(path + ".gz", "wb", 6) as packed:
            shutil.copyfileobj(plain, packed)
        os.remove(path)


def watched_training(machine, model, adapter, seconds=15):
    """One epoch under the profiler; what compare.compare says of it, and the job."""
    machine.need_torch()
    if adapter and not adapter_there(machine):
        raise Skipped("this bundle has no PyTorch adapter")
    if not adapter and machine.software:
        raise Skipped("without a GPU PyTorch makes no CUDA calls: iterations are found by the adapter alone")
    count = iterations_for(machine, model, seconds)
    corpus, batch = MODELS[model][0], batch_of(machine, model)
    with session.Session(machine, f"{model}-{'adapter' if adapter else 'auto'}") as watched:
        csv = os.path.join(watched.folder, "lengths.csv")
        corpora.write_lengths(csv, corpora.draw_lengths(corpus, count * batch, 1))
        log_path = os.path.join(watched.folder, "log.csv")
        # A minute of training must pay for the measurements that an hour would.
        watched.train_start(f"{model}.py", ["--lengths", csv, "--batch", str(batch), "--log", log_path],
                            ["--lengths", csv, "--batch", str(batch), "--drop-last", "--overhead-budget", "5%"],
                            extra={} if adapter else session.WITHOUT_ADAPTER)
        asked = {}
        for fraction in (0.05, 0.25):
            if watched.until(lambda job, f=fraction: job["iterations"] >= f * count, pause=0.05) is None:
                break
            asked[fraction] = watched.project()
        watched.wait()
        time.sleep(0.5)  # the last records are on their way
        asked[1.0] = watched.project()
        found = watched.ask("iterations", watched.name, "--all", check=False).get("iterations", [])
        job = watched.job()
        keep_trace(watched)
    log = compare.read_log(log_path)
    result = compare.compare(log, found, asked)
    rows = compare.judge(result)
    missed = [row[0] for row in rows if row[3] is False]
    rule = (job.get("rule") or {})
    return {"summary": [f"{len(log)} iterations of batch {batch}; rule: {rule.get('boundary') or rule or 'none'}",
                        f"measured {(job.get('seqpoints') or {}).get('measurements')}; "
                        f"{job.get('error') or 'no error reported'}",
                        f"{sum(row[3] is True for row in rows)} figures with something to reach, all met" if not missed else "missed: " + "; ".join(missed)],
            "tables": [{"columns": ["figure", "measured", "to reach", "met"], "rows": [list(row) for row in rows]}],
            "comparison": result, "job": job}


STEPS = [("pace", 120, pace)]
for _model in MODELS:
    for _adapter in (False, True):
        STEPS.append((f"{_model}_{'adapter' if _adapter else 'auto'}", 90,
                      lambda machine, m=_model, a=_adapter: watched_training(machine, m, a)))
