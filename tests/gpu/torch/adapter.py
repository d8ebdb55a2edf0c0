"""What the PyTorch adapter costs a training of much Python, and which part of it: one process times the
same block of iterations as it is, and then with one part after the other taken away. One JSON object:
{"blocks": [{"without", "ms", "collections"}], "facts": {...}}.

`collections`: of Python's garbage collector in the block, by generation."""
import gc
import json
import sys
import threading
import time

import torch

import common
from overhead import Launches, pin


def facts():
    """What may make an interpreter slower as a whole."""
    monitoring = getattr(sys, "monitoring", None)
    eval_frame = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    callback = getattr(eval_frame, "get_eval_frame_callback", None)
    return {"python": sys.version.split()[0], "torch": torch.__version__, "adapter": "seqpoint_adapter" in sys.modules,
            "trace": repr(sys.gettrace()), "profile": repr(sys.getprofile()),
            "monitoring": [monitoring.get_tool(i) for i in range(6)] if monitoring else None,
            "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
            "threads": [t.name for t in threading.enumerate()], "objects": len(gc.get_objects()),
            "dynamo": "torch._dynamo" in sys.modules, "eval_frame": repr(callback()) if callback else None,
            "switch_interval": sys.getswitchinterval()}


def without_class(model):
    for owner in type(model).__mro__:
        call = owner.__dict__.get("__call__")
        if hasattr(call, "__wrapped__"):
            owner.__call__ = call.__wrapped__


def without_hooks(_):
    hooks = getattr(sys.modules.get("torch.optim.optimizer"), "_global_optimizer_post_hooks", None)
    if hooks is not None:
        hooks.clear()


def without_backward(_):
    for name in ("backward", "grad"):
        function = getattr(torch.autograd, name)
        if hasattr(function, "__wrapped__"):
            setattr(torch.autograd, name, function.__wrapped__)


PARTS = [("nothing", lambda _: None), ("hooks of optimisers", without_hooks), ("the root's class", without_class),
         ("the backward pass", without_backward), ("the garbage collector", lambda _: gc.disable())]


def main():
    pin()
    options = common.arguments(__doc__)
    job = Launches(options)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    count = 5 if options.tiny else 60

    def block():
        synchronize()
        before = [one["collections"] for one in gc.get_stats()]
        begin = time.perf_counter()
        for index in range(count):
            job.step(index)
        synchronize()
        return {"ms": (time.perf_counter() - begin) * 1e3 / count,
                "collections": [one["collections"] - was for one, was in zip(gc.get_stats(), before)]}

    for _ in range(3):
        block()
    answer = {"blocks": [], "facts": facts()}
    for name, take_away in PARTS:
        take_away(job.model)
        block()
        answer["blocks"] += [{"without": name, **block()} for _ in range(2)]
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
