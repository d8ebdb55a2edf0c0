"""Part e: pairs of one change each, for what-if to be judged by."""
import json

import session
from machine import StepFailed


def lay_out(lines):
    """Rows of [pair, before ms, after ms, after / before, traces] from the script's JSON lines."""
    sides = {}
    for line in lines:
        sides.setdefault(line["pair"], {})[line["side"]] = line
    rows, failed = [], []
    for name, pair in sides.items():
        before, after = pair.get("before", {}), pair.get("after", {})
        for side in (before, after):
            if "failed" in side:
                failed.append(f"{name} {side['side']}: {side['failed']}")
        why = before.get("skipped") or after.get("skipped")
        ratio = after["ms"] / before["ms"] if "ms" in before and "ms" in after else None
        rows.append([name, before.get("ms"), after.get("ms"), ratio,
                     why or f"{before.get('trace_bytes', 0) // 1000} + {after.get('trace_bytes', 0) // 1000} kB"])
    return rows, failed


def pairs(machine, names, iterations=0):
    machine.need_torch()
    folder = machine.folder("whatif")
    arguments = ["--pairs", ",".join(names), "--traces", folder] + (["--iterations", str(iterations)] if iterations else [])
    out = machine.run([machine.python, machine.torch_script("whatif.py"), *session.device(machine), *arguments],
                      env=machine.environment(cuda=False), check=False)
    lines = [json.loads(line) for line in out.text.splitlines() if line.startswith('{"pair"')]
    rows, failed = lay_out(lines)
    if not rows or (failed and len(failed) == len(lines)):
        raise StepFailed("; ".join(failed) or f"no answer; its output ends with:\n{out.text[-1500:]}")
    return {"summary": ["true times without a profiler, medians of iterations; traces of three iterations (torch.profiler) "
                        "in details.tar.gz, whatif/PAIR.SIDE.json.gz"] + [f"failed: {text}" for text in failed],
            "tables": [{"columns": ["pair", "before ms", "after ms", "after / before", "traces"], "rows": rows}],
            "raw": lines}


STEPS = [
    ("precision", 60, lambda machine: pairs(machine, ["tf32", "bf16"])),
    ("adam", 60, lambda machine: pairs(machine, ["adam_foreach", "adam_fused"])),
    ("cuda_graph", 60, lambda machine: pairs(machine, ["cuda_graph"])),
    ("compile", 120, lambda machine: pairs(machine, ["compile"])),
    ("channels_last", 60, lambda machine: pairs(machine, ["channels_last"])),
    ("batch", 60, lambda machine: pairs(machine, ["batch_8_32", "batch_8_128", "batch_8_256"])),
    ("workers", 60, lambda machine: pairs(machine, ["workers"])),
]
