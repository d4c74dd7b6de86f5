"""Compiles HLO for a TPU without one, with the compiler in libtpu, called through JAX."""

import os
import re
import time
from typing import NamedTuple

import numpy as np

from txl_tf.errors import InputError

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",  # do not ask a metadata server for a TPU
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_ACCELERATOR_TYPE="v5litepod-1",
    TPU_WORKER_HOSTNAMES="localhost",
    JAX_PLATFORMS="cpu",
)
try:
    import jax
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
except ImportError as error:
    raise InputError(f"this needs JAX ({error}): pip install -r evidence/compilers/requirements-aot.txt") from error


class Compiled(NamedTuple):
    """A compiled program and its costs for one device. Sizes in bytes; `hlo` is the text of the optimized program."""

    argument_bytes: int
    output_bytes: int  # of outputs that are not written over an argument
    temp_bytes: int
    flops: float
    bytes_accessed: float
    hlo: str
    seconds: float


class DoesNotFitError(Exception):
    """A program does not fit into a device's memory: it needs `wanted` bytes, and there are `available`."""

    def __init__(self, wanted, available):
        super().__init__(f"the program needs {wanted:,} bytes of memory, and there are {available:,}")
        self.wanted = wanted
        self.available = available


def devices_of(topology):
    """The cores of a topology such as "v5e:2x2".

    Raises:
        InputError: the compiler does not have this topology.
    """
    try:
        if not re.fullmatch(r"\w+:[1-9]\d*(x[1-9]\d*)*", topology):
            # libtpu divides by these numbers, and takes an empty topology for the machine's own.
            raise ValueError("it must be a generation, a colon and numbers of chips above 0")
        import libtpu  # noqa: F401 (JAX loads it; imported here so that its absence is reported now)

        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except ImportError as error:
        raise InputError(
            f"compiling for a TPU needs JAX and libtpu ({error}): "
            "pip install -r evidence/compilers/requirements-aot.txt"
        ) from error
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        raise InputError(
            f"--topology={topology} is not one the TPU compiler knows (such as v5e:1x1, v5e:2x2, v6e:2x2, v4:2x2x1, "
            f"v3:2x2): {str(error).splitlines()[0]}"
        ) from error


def to_stablehlo(hlo, target="tpu"):
    """Converts an HLO module that was lowered for a CPU into StableHLO for a "tpu" or a "gpu", as MLIR bytecode."""
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        for operation in list(_operations(module.operation)):
            if operation.name == "mhlo.copy":  # from variable assignments; not StableHLO
                operation.result.replace_all_uses_with(operation.operands[0])
                operation.erase()
            elif target == "tpu" and operation.name == "stablehlo.rng_bit_generator":
                _use_the_native_generator(operation)
        return mlir.module_to_bytecode(module)


def compile_for(devices, stablehlo_module):
    """Compiles a StableHLO module for the devices of `devices_of`, one replica on each: a Compiled.

    Raises:
        DoesNotFitError: a device's memory is too small.
    """
    start = time.perf_counter()
    options = _jax.CompileOptions()
    options.num_replicas = len(devices)
    ids = np.array([[device.id] for device in devices])
    options.device_assignment = xla_client.DeviceAssignment.create(ids)
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo_module)
        try:
            executable = devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), options)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DoesNotFitError(_wanted(str(error)), _available(str(error))) from error
    memory = executable.get_compiled_memory_stats()
    return Compiled(
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        flops=executable.cost_analysis()["flops"],
        bytes_accessed=executable.cost_analysis()["bytes accessed"],
        hlo=executable.hlo_modules()[0].to_string(),
        seconds=time.perf_counter() - start,
    )


def hbm_of(device):
    """Bytes of HBM that a program may use: read from the compiler's message about a program that is too large."""
    huge = "tensor<1099511627776xf32>"
    with mlir.make_ir_context():
        module = ir.Module.parse(
            f"func.func public @main(%x: {huge}) -> {huge} {{ %y = stablehlo.add %x, %x : {huge} return %y : {huge} }}"
        )
        bytecode = mlir.module_to_bytecode(module)
    try:
        compile_for([device], bytecode)
    except DoesNotFitError as refusal:
        return refusal.available
    raise RuntimeError("the compiler accepted a program of 8 TB")


def _wanted(message):
    return _bytes(re.search(r"(?:Used |\()([\d.]+)([KMGT])", message))


def _available(message):
    return _bytes(re.search(r"(?:available HBM \(| of )([\d.]+)([KMGT])", message))


def _bytes(size):
    return int(float(size[1]) * 1024 ** ("KMGT".index(size[2]) + 1))


def _operations(operation):
    """All operations inside one, innermost first."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operations(inner.operation)
                yield inner.operation


def _use_the_native_generator(operation):
    """Replaces a CPU's Philox generator with state u64[3] by the TPU's own generator with state u64[2]."""
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
