"""The TPU compiler of libtpu, reached through JAX: HLO in, a compiled program out, with no TPU."""

import os
import re
import time
from typing import NamedTuple

from txl_tf.errors import InputError

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",  # ask no metadata server for a TPU
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_ACCELERATOR_TYPE="v5litepod-1",
    TPU_WORKER_HOSTNAMES="localhost",
    JAX_PLATFORMS="cpu",
)
try:
    import jax
    import libtpu  # noqa: F401 (JAX finds it; without it the error would come late)
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
except ImportError as error:
    raise InputError(
        f"compiling for a TPU needs JAX and libtpu ({error}): pip install -r tpu/requirements-aot.txt"
    ) from error


class Compiled(NamedTuple):
    """A compiled program. Sizes in bytes; `cost` is XLA's cost analysis, `hlo` the optimized program."""

    argument_bytes: int
    output_bytes: int  # of outputs that replace no argument
    temp_bytes: int
    code_bytes: int
    cost: dict
    hlo: str
    seconds: float


class DoesNotFitError(Exception):
    """The compiler found no room for the program; the message says how much it wanted."""


def device_of(topology):
    """A device of a topology such as "v5e:2x2".

    Raises:
        InputError: the compiler knows no such topology.
    """
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        raise InputError(f"--topology={topology}: {str(error).splitlines()[0]}") from error


def to_stablehlo(hlo):
    """A StableHLO module, as MLIR bytecode, of an HLO module lowered for a CPU: with the operations a TPU has."""
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        for operation in list(_operations(module.operation)):
            if operation.name == "mhlo.copy":  # from variable assignments; the TPU compiler does not take it
                operation.result.replace_all_uses_with(operation.operands[0])
                operation.erase()
            elif operation.name == "stablehlo.rng_bit_generator":
                _use_the_native_generator(operation)
        return mlir.module_to_bytecode(module)


def compile_for(device, stablehlo_module):
    """Compiles a StableHLO module for a device of `device_of`: a Compiled.

    Raises:
        DoesNotFitError: the device's memory is too small.
    """
    start = time.perf_counter()
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo_module)
        try:
            executable = device.client.compile(module, _jax.DeviceList((device,)), _jax.CompileOptions())
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DoesNotFitError(str(error)) from error
    memory = executable.get_compiled_memory_stats()
    return Compiled(
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
        cost=executable.cost_analysis(),
        hlo=executable.hlo_modules()[0].to_string(),
        seconds=time.perf_counter() - start,
    )


def hbm_of(device):
    """Bytes of HBM that a program may use, as the compiler itself says when one wants too much."""
    with mlir.make_ir_context():
        huge = "tensor<1099511627776xf32>"
        module = ir.Module.parse(
            f"func.func public @main(%x: {huge}) -> {huge} {{ %y = stablehlo.add %x, %x : {huge} return %y : {huge} }}"
        )
        bytecode = mlir.module_to_bytecode(module)
    try:
        compile_for(device, bytecode)
    except DoesNotFitError as refusal:
        size, unit = re.search(r"available HBM \(([\d.]+)([KMGT])\)", str(refusal)).groups()
        return int(float(size) * 1024 ** ("KMGT".index(unit) + 1))
    raise RuntimeError("the compiler accepted 8 TB")


def _operations(operation):
    """All operations inside one, innermost first."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operations(inner.operation)
                yield inner.operation


def _use_the_native_generator(operation):
    """Random bits from Philox and a state u64[3], as on a CPU, become those of the TPU's generator and a u64[2]."""
    state, bits = operation.results
    with ir.InsertionPoint(operation), operation.location:
        pair = ir.RankedTensorType.get([2], ir.IntegerType.get_unsigned(64))
        short = stablehlo.SliceOp(operation.operands[0], [0], [2], [1]).result
        default = stablehlo.RngAlgorithmAttr.get("DEFAULT")
        native = stablehlo.RngBitGeneratorOp(pair, bits.type, default, short)
        rest = stablehlo.SliceOp(operation.operands[0], [2], [3], [1]).result
        longer = stablehlo.ConcatenateOp([native.output_state, rest], 0).result
    state.replace_all_uses_with(longer)
    bits.replace_all_uses_with(native.output)
    operation.erase()
