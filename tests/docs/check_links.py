#!/usr/bin/env python3
"""Checks that what pages link to or name exists: links, anchors, paths of the tree; and every docs/….md
that any other file names.

`./dev lint` runs it. It prints a line for each that does not exist, and then exits 1.
"""
import os
import re
import subprocess
import sys


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", open(page, encoding="utf-8").read(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def problems(name, text):
    for path in re.findall(r"(?<![\w/.])docs/[\w/-]+\.(?:md|svg)", text):
        if not os.path.exists(path):
            yield path
    if not name.endswith(".md"):
        return
    for path in re.findall(r"`((?:proto|injection|daemon|client|tests|deploy|cmake)/[\w./-]*)`", text):
        if not os.path.exists(path) and "NAME" not in path:
            yield path
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if re.match(r"[a-z]+:", link):
            continue
        if not os.path.exists(target) or (anchor and anchor not in anchors(target)):
            yield link


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    wrong = []
    for name in filter(os.path.isfile, subprocess.check_output(listed, text=True).split("\0")):
        text = open(name, encoding="utf-8", errors="ignore").read()
        wrong += [f"{name}: {link} does not exist" for link in problems(name, text)]
    for page in subprocess.check_output(["git", "ls-files", "docs/*.md"], text=True).split():
        link = f"]({os.path.relpath(page, 'docs')})"
        if page != "docs/README.md" and link not in open("docs/README.md", encoding="utf-8").read():
            wrong.append(f"docs/README.md: no link to {page}")
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
