"""The peak FLOP/s of a TPU: the denominator of MFU (model FLOPs utilisation)."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

import tensorflow as tf

CHIP_TFLOPS = {"v2": 46, "v3": 123, "v4": 275, "v5litepod": 197, "v5p": 459, "v6e": 918}
"""Peak of one TPU chip in bfloat16, by the first part of its accelerator type (docs.cloud.google.com/tpu/docs)."""

COUNTED_IN_CORES = ("v2", "v3", "v4", "v5p")
"""Accelerator types whose names give the number of cores, two per chip; other names give the number of chips."""

METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/accelerator-type"


def peak_tflops(strategy: tf.distribute.Strategy) -> float | None:
    """Peak bfloat16 TFLOP/s of one replica; None if it is not known: no TPU, or a TPU of unknown type."""
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        return None
    accelerator = os.environ.get("TPU_ACCELERATOR_TYPE") or _accelerator_of_this_vm()
    total = accelerator_tflops(accelerator)
    return total / strategy.num_replicas_in_sync if total else None


def accelerator_tflops(accelerator: str) -> float | None:
    """Peak TFLOP/s of a whole slice such as "v5litepod-4" or "v3-8"; None for an unknown name."""
    kind, _, count = accelerator.partition("-")
    if kind not in CHIP_TFLOPS or not count.isdigit():
        return None
    return CHIP_TFLOPS[kind] * int(count) / (2 if kind in COUNTED_IN_CORES else 1)


def _accelerator_of_this_vm() -> str:
    request = urllib.request.Request(METADATA, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, TimeoutError):
        return ""
