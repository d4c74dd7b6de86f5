"""Parses the text of a compiled HLO program: instructions, the compiler's cost estimates, lifetimes of buffers."""

import collections
import math
import re
from typing import NamedTuple

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\([^=]*?\)|\S+) ([\w\-]+)\((.*)$")
SHAPE = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\](?:\{([\d,]*)((?::[^}]*)?)\})?")
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
NAME = re.compile(r'op_name="([^"]*)"')
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
ALIASES = re.compile(r"\{(\d+)\}: \(\d+,")
SAME_MEMORY = {"bitcast", "tuple", "get-tuple-element", "while", "optimization-barrier", "copy-done", "slice-done"}
"""Opcodes whose result shares the memory of their operands."""
RESULT_OF_START = {"copy-start": 0, "slice-start": 1}
"""The index of the copy among the arrays in the shape of an asynchronous copy."""
WITHOUT_ESTIMATE = {"rng-bit-generator", "sort", "all-reduce", "all-reduce-start", "reduce-scatter", "all-gather"}
"""Opcodes that take time, but have no estimate from the compiler."""


class Instruction(NamedTuple):
    """One line of HLO."""

    name: str
    shape: str
    opcode: str
    rest: str  # operands, attributes and metadata
    root: bool

    @property
    def operands(self):
        """The names of its operands."""
        depth, end = 1, 0
        while depth and end < len(self.rest):
            depth += {"(": 1, ")": -1}.get(self.rest[end], 0)
            end += 1
        return re.findall(r"%([\w.\-]+)", self.rest[:end])

    @property
    def scope(self):
        """The TensorFlow name of the operation with its scopes; may be empty."""
        found = NAME.search(self.rest)
        return found[1] if found else ""


class Cost(NamedTuple):
    """The cost of an instruction: cycles of all its executions, or bytes. `name` is its TensorFlow name."""

    opcode: str
    name: str
    amount: int


class Program:
    """A compiled program.

    Args:
        hlo: its text.
    """

    def __init__(self, hlo):
        self.aliased_outputs = {int(output) for output in ALIASES.findall(hlo.split("\n", 1)[0])}
        self.computations = {}
        for line in re.sub(r"/\*.*?\*/", "", hlo).splitlines():
            header = COMPUTATION.match(line)
            if header:
                instructions = self.computations.setdefault(header[2], {})
                self.entry = header[2] if header[1] else getattr(self, "entry", None)
                continue
            found = INSTRUCTION.match(line)
            if found:
                root, name, shape, opcode, rest = found.groups()
                instructions[name] = Instruction(name, shape, opcode, rest, bool(root))

    def costs(self, unknown_trips=0):
        """The Cost of every instruction that runs and has an estimate.

        The body of a loop counts once per iteration, or `unknown_trips` times where the number of iterations depends on
        the data. A conditional counts as its most expensive branch.
        """
        return [
            Cost(instruction.opcode, self.scope_of(instruction), int(found[1]) * times)
            for instruction, times in self.executed(unknown_trips)
            if (found := CYCLES.search(instruction.rest))
        ]

    def executed(self, unknown_trips=0):
        """(instruction, how often it runs) of everything that runs; arguments and loops as for `costs`."""
        return self._executed(self.entry, 1, unknown_trips)

    def without_estimate(self, unknown_trips=0):
        """What `costs` does not include: {opcode: {"instructions": executions, "bytes": of their results}}."""
        left_out = collections.defaultdict(lambda: {"instructions": 0, "bytes": 0})
        for instruction, times in self.executed(unknown_trips):
            if instruction.opcode in WITHOUT_ESTIMATE and not CYCLES.search(instruction.rest):
                left_out[instruction.opcode]["instructions"] += times
                left_out[instruction.opcode]["bytes"] += times * sum(sizes_of(instruction.shape, in_hbm=False))
        return dict(left_out)

    def unknown_loops(self):
        """The number of loops whose trip count depends on the data."""
        loops = [
            one.opcode == "while" and self._trips(one, computation) is None
            for computation in self.computations
            for one in self.computations[computation].values()
        ]
        return sum(loops)

    def parameter_bytes(self):
        """The size of each parameter in HBM, in order."""
        entry = self.computations[self.entry].values()
        parameters = {int(one.rest.split(")")[0]): one for one in entry if one.opcode == "parameter"}
        return [sum(sizes_of(parameters[i].shape)) for i in range(len(parameters))]

    def live_at_peak(self):
        """The Cost in bytes of each live buffer at the peak of memory.

        Parameters and the outputs that replace them are not included. It is an estimate from the schedule: the compiler
        reuses memory in ways that the text does not show.
        """
        return self._peak(self.entry)

    def _executed(self, computation, times, unknown_trips):
        for one in self.computations[computation].values():
            yield one, times
            if one.opcode == "while":
                trips = self._trips(one, computation)
                repeated = times * (unknown_trips if trips is None else trips)
                for part in ("condition", "body"):
                    yield from self._executed(_called(one, part), repeated, unknown_trips)
            elif one.opcode == "conditional":
                branches = [list(self._executed(name, times, unknown_trips)) for name in _branches(one)]
                yield from max(branches, key=_cycles)
            elif one.opcode in ("call", "async-start"):
                yield from self._executed(_called(one, "to_apply|calls"), times, unknown_trips)

    def scope_of(self, instruction):
        """An instruction's scope; for a fusion without a name, the last scope of the instructions inside it."""
        if instruction.scope or instruction.opcode != "fusion":
            return instruction.scope
        inside = [one.scope for one in self.computations[_called(instruction, "calls")].values() if one.scope]
        return inside[-1] if inside else ""

    def _trips(self, loop, computation):
        """The number of iterations of a loop, or None if it depends on the data.

        Some loops have it as an attribute. For others, such as those that the compiler makes from large reshapes, it is
        read from the condition: a counter that rises by 1 from one constant to another.
        """
        noted = TRIPS.search(loop.rest)
        if noted:
            return int(noted[1])
        condition, body = (self.computations[_called(loop, part)] for part in ("condition", "body"))
        test = next(one for one in condition.values() if one.root)
        if test.opcode != "compare" or "direction=LT" not in test.rest:
            return None
        counter, limit = test.operands
        if condition[counter].opcode != "get-tuple-element":
            return None
        place = _index(condition[counter])
        here = self.computations[computation]
        carried, changed = here[loop.operands[0]], next(one for one in body.values() if one.root)
        if carried.opcode != "tuple" or changed.opcode != "tuple":
            return None
        start, limit = _constant(here, carried.operands[place]), _constant(condition, limit)
        change = body[changed.operands[place]]
        steps = [_constant(body, name) for name in change.operands if body[name].opcode != "get-tuple-element"]
        if start is None or limit is None or change.opcode != "add" or steps != [1]:
            return None
        return max(limit - start, 0)

    def _peak(self, computation):
        # A buffer is (the instruction that creates it, index of its result); `places` has the buffers of each value.
        places, made_by, sizes, last_use, inner = {}, {}, {}, {}, {}
        instructions = list(self.computations[computation].values())
        for now, one in enumerate(instructions):
            operands = [places.get(operand, ()) for operand in one.operands]
            for buffer in (buffer for operand in operands for buffer in operand):
                last_use[buffer] = now
            if one.opcode == "get-tuple-element" and len(operands[0]) > 1:
                places[one.name] = operands[0][_index(one) : _index(one) + 1]
            elif one.opcode in SAME_MEMORY:
                places[one.name] = tuple(buffer for operand in operands for buffer in operand)
            elif one.opcode in ("parameter", "constant"):
                places[one.name] = tuple((one.name, i) for i in range(len(sizes_of(one.shape))))
            else:
                made = sizes_of(one.shape)
                if one.opcode in RESULT_OF_START:
                    made = [made[RESULT_OF_START[one.opcode]]]
                places[one.name] = tuple((one.name, i) for i in range(len(made)))
                for buffer, size in zip(places[one.name], made, strict=True):
                    made_by[buffer], sizes[buffer], last_use[buffer] = one, size, now
            if one.opcode == "while":
                inner[now] = self._peak(_called(one, "body"))
            if one.root:
                results = places[one.name] if one.opcode == "tuple" else ()
                replaced = {buffer for i, buffer in enumerate(results) if i in self.aliased_outputs}
        begins = collections.defaultdict(list)
        for buffer in sizes:
            if computation != self.entry or buffer not in replaced:
                begins[buffer[0]].append(buffer)
        alive, most, best = {}, -1, []
        for now, one in enumerate(instructions):
            alive |= {buffer: sizes[buffer] for buffer in begins[one.name]}
            total = sum(alive.values()) + sum(cost.amount for cost in inner.get(now, ()))
            if total > most:
                most = total
                best = [Cost(made_by[b].opcode, self.scope_of(made_by[b]), size) for b, size in alive.items() if size]
                best += inner.get(now, [])
            alive = {buffer: size for buffer, size in alive.items() if last_use[buffer] > now}
        return best


def _cycles(executed):
    return sum(int(found[1]) * times for one, times in executed if (found := CYCLES.search(one.rest)))


def _index(get_tuple_element):
    return int(re.search(r"\bindex=(\d+)", get_tuple_element.rest)[1])


def _constant(computation, name):
    """The value of an integer constant, also through copies; None for anything else."""
    while computation[name].opcode == "copy":
        (name,) = computation[name].operands
    found = re.match(r"-?\d+(?=\))", computation[name].rest)
    return int(found[0]) if computation[name].opcode == "constant" and found else None


def _called(instruction, attribute):
    return re.search(rf"\b(?:{attribute})=%?([\w.\-]+)", instruction.rest)[1]


def _branches(instruction):
    several = re.search(r"branch_computations=\{([^}]*)\}", instruction.rest)
    if several:
        return [name.strip(" %") for name in several[1].split(",")]
    return re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", instruction.rest)


def sizes_of(shape, in_hbm=True):
    """Bytes of every array in a shape such as "(f32[8,3]{1,0:T(8,128)}, u32[2]{0:S(1)})", padded to whole tiles.

    Arrays in other memory than HBM, such as S(1), VMEM, count as 0 unless `in_hbm` is False.
    """
    return [_size(*array.groups(), in_hbm) for array in SHAPE.finditer(shape)]


def _size(kind, bits, dimensions, order, layout, in_hbm):
    if in_hbm and layout and re.search(r"S\([1-9]", layout):
        return 0
    sizes = [int(size) for size in dimensions.split(",") if size]
    minor_first = [sizes[int(i)] for i in (order or "").split(",") if i] or sizes[::-1]
    tile = re.search(r"T\(([\d,]+)\)", layout or "")
    if tile:
        for i, size in enumerate(int(size) for size in reversed(tile[1].split(","))):
            if i < len(minor_first):
                minor_first[i] = math.ceil(minor_first[i] / size) * size
    return math.prod(minor_first) * max(int(bits or 8), 8) // 8 if kind != "token" else 0
