"""`seqpoint` is a client of the API: no object or header of the daemon is in it.

Usage: link_closure_test.py BUILD_FOLDER CASE. Asks ninja, which knows what the program was made of.
"""
import pathlib
import subprocess
import sys

FOREIGN = ("daemon/", "injection/", "tests/")
PROGRAM = "bin/seqpoint"


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, "-t", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def foreign(paths, *roots):
    """Those of the daemon's folders; `roots`: of the sources and of the build."""
    relative = (next((path[len(root) + 1:] for root in roots if path.startswith(root + "/")), path) for path in paths)
    return sorted(path for path in relative if path.startswith(FOREIGN))


def main(build):
    if not pathlib.Path(build, "build.ninja").exists():
        return 77
    source = str(pathlib.Path(__file__).resolve().parent.parent)
    inputs = [line.strip() for line in ninja(build, "inputs", PROGRAM)]
    objects = [path for path in inputs if path.endswith(".o")]
    assert any(path.startswith("client/") for path in objects), f"no object of client/ in {PROGRAM}: {inputs}"
    assert foreign(["daemon/x.o", f"{source}/daemon/x.h"], source) == ["daemon/x.h", "daemon/x.o"]
    found = foreign(inputs, build, source)
    headers = [line.strip() for line in ninja(build, "deps", *objects) if line.startswith("    ")]
    assert headers, "ninja knows no headers: build the program first"
    found += foreign(headers, build, source)
    for path in found:
        print(f"{PROGRAM} is made of {path}: ask the daemon over the API instead")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve())))
