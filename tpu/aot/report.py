"""Where a compiled program's cycles go: the TPU compiler's own estimates, found in the HLO it wrote."""

import re
from typing import NamedTuple

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (?:\([^=]*?\)|\S+) ([\w\-]+)\(")
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
NAME = re.compile(r'op_name="([^"]*)"')
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Cost(NamedTuple):
    """Cycles of one instruction, all its repetitions together."""

    opcode: str
    name: str  # TensorFlow's, with its scopes
    cycles: int


def costs(hlo, unknown_trips=1):
    """The Cost of every instruction that the program runs.

    A loop counts as often as it is known to run, or `unknown_trips` times where only the data say; of a
    conditional's branches the most expensive counts.

    Args:
        hlo: the optimized program's text.
        unknown_trips: int.
    """
    computations, entry = _computations(hlo)

    def walk(name, times):
        for opcode, line in computations[name]:
            found = CYCLES.search(line)
            if found:
                scope = NAME.search(line)
                yield Cost(opcode, scope[1] if scope else "", int(found[1]) * times)
            if opcode == "while":
                known = TRIPS.search(line)
                trips = int(known[1]) if known else unknown_trips
                for part in ("condition", "body"):
                    yield from walk(re.search(rf"\b{part}=%?([\w.\-]+)", line)[1], times * trips)
            elif opcode == "conditional":
                branches = [list(walk(branch, times)) for branch in _branches(line)]
                yield from max(branches, key=lambda branch: sum(cost.cycles for cost in branch))
            elif opcode in ("call", "async-start"):
                called = re.search(r"\b(?:to_apply|calls)=%?([\w.\-]+)", line)
                yield from walk(called[1], times)

    return list(walk(entry, 1))


def unknown_loops(hlo):
    """How many loops' trip counts only the data say."""
    return sum(" while(" in line and not TRIPS.search(line) for line in hlo.splitlines())


def _computations(hlo):
    """{name: [(opcode, line)]} and the name of the entry."""
    computations, entry, lines = {}, None, []
    for line in hlo.splitlines():
        header = COMPUTATION.match(line)
        if header:
            lines = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
            continue
        instruction = INSTRUCTION.match(line)
        if instruction:
            lines.append((instruction[2], line))
    return computations, entry


def _branches(line):
    several = re.search(r"branch_computations=\{([^}]*)\}", line)
    if several:
        return [name.strip(" %") for name in several[1].split(",")]
    return re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)
