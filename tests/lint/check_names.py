#!/usr/bin/env python3
"""Checks the names of the product against .clang-tidy: check_names.py BUILD_FOLDER JOBS

Reads the files of a folder's targets as one file, so that their headers are read once. ccache
remembers the folders that passed: it takes clang_tidy_compiler for a compiler. Reviewers check the
names in tests.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main(build, jobs):
    environment = dict(os.environ)
    compiler = [str(HERE / "clang_tidy_compiler")]
    if shutil.which("ccache"):
        compiler.insert(0, "ccache")
        # A result is valid for one version of clang-tidy and one .clang-tidy.
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True).stdout
        environment["CCACHE_COMPILERCHECK"] = f"string:{version}{(ROOT / '.clang-tidy').read_text()}"
        environment["CCACHE_COMPILERTYPE"] = "clang"
    folder = build / "names"
    folder.mkdir(exist_ok=True)

    def check(part, flags, files):
        group = folder / f"{part.replace('/', '_')}.cc"
        group.write_text("".join(f'#include "{file}"\n' for file in files))
        return subprocess.run(compiler + flags + ["-c", str(group), "-o", str(group) + ".o"],
                              cwd=build, env=environment, capture_output=True, text=True)

    parts = product_parts(build)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda part: check(part, *parts[part]), parts))
    for result in results:
        if result.returncode != 0:
            print(result.stdout + result.stderr, file=sys.stderr)
    return any(result.returncode != 0 for result in results)


def product_parts(build):
    """Folder with targets -> (compiler flags, source files relative to the project)."""
    parts = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        target = re.search(r" -o ((?:injection|daemon|client)(?:/\S*)?)/CMakeFiles/([\w-]+)\.dir/",
                           command["command"])
        if not target or re.search(r"(_test|_fake|_proto|_benchmark|_coverage)$", target[2]):
            continue
        flags, files = parts.setdefault(target[1], ([f"-I{ROOT}", "-w"], []))
        arguments = shlex.split(command["command"])
        for argument, following in zip(arguments, arguments[1:]):
            if argument == "-isystem":
                found = [argument, following]
            elif re.match(r"-(D|I|std=|fno-exceptions|fno-rtti)", argument):
                found = [argument]
            else:
                continue
            if found[-1] not in flags:
                flags += found
        files += [os.path.relpath(file, ROOT) for file in sources(command["file"])
                  if not file.endswith("_test.cc")]
    return {part: found for part, found in parts.items() if found[1]}


def sources(file):
    """The files that CMake compiles together as `file`."""
    if "/Unity/" not in file:
        return [file]
    return re.findall(r'^#include "(.*)"$', pathlib.Path(file).read_text(), re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])))
