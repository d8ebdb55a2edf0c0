"""Which CUPTI PyTorch brings: mapped by its import or later, and whether its own libraries hold one that
is linked statically, which a profiler outside of it cannot find."""
import glob
import json
import mmap
import os

import torch

import common

# A text that CUPTI's own library has (cuptiGetResultString), and no user of it.
OF_CUPTI_ITSELF = b"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"


def holds_cupti(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(OF_CUPTI_ITSELF) >= 0


def main():
    before = common.cupti()  # nothing of CUDA has begun
    options = common.arguments(__doc__)
    torch.zeros(1, device=options.device)
    libraries = [{"file": os.path.basename(path), "mib": os.path.getsize(path) >> 20, "static": holds_cupti(path)}
                 for path in sorted(glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch*.so")) +
                                    glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libkineto*.so")))
                 if os.path.getsize(path) > 0]
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "mapped_by_import": before is not None,
                      "cupti": common.cupti(), "libraries": libraries,
                      "static": [one["file"] for one in libraries if one["static"]]}))


if __name__ == "__main__":
    main()
