"""Not a test: where the tests' time goes, by file, from a report of pytest --junitxml. `make test-times`."""

import collections
import sys
import xml.etree.ElementTree as ElementTree


def main(path):
    seconds, tests = collections.Counter(), collections.Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.get("classname").replace(".", "/") + ".py"
        seconds[file] += float(case.get("time"))
        tests[file] += 1
    whole = sum(seconds.values())
    folders = collections.Counter()
    for file, taken in seconds.items():
        folders["/".join(file.split("/")[:2])] += taken
    print(f"{'seconds':>8} {'share':>6} {'tests':>6}  file")
    for file, taken in seconds.most_common():
        print(f"{taken:8.1f} {taken / whole:6.1%} {tests[file]:6}  {file}")
    print("\nfolders: " + ", ".join(f"{folder} {taken / whole:.0%}" for folder, taken in folders.most_common()))
    print(f"{sum(tests.values()):,} tests, {whole:,.0f} s of all processes together")


if __name__ == "__main__":
    main(sys.argv[1])
