"""Distribution: strategies, and the state (such as mems) of their replicas."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from txl_tf.devices.collectives import own_part
from txl_tf.errors import InputError, one_line
from txl_tf.ops import platform
from txl_tf.settings.choices import STRATEGIES


def make_strategy(name: str = "auto", tpu: str | None = None) -> tf.distribute.Strategy:
    """The tf.distribute strategy to build and run a model under. Call it before TensorFlow does anything else.

    Args:
        name: the devices. "tpu": all cores of a TPU. "mirrored": all GPUs of this machine (or its logical CPUs).
            "multi_worker": all GPUs of the machines in the environment variable TF_CONFIG, or their CPUs without GPUs.
            "one_device": the first GPU or the CPU. "auto": "tpu" if `tpu` is given, else "multi_worker" if TF_CONFIG
            lists several machines, else "mirrored" if there are several GPUs, else "one_device".
        tpu: a TPU's name or address, "local" on a TPU VM; None: none.

    Raises:
        InputError: the TPU does not answer, flags that contradict each other, or a TF_CONFIG that cannot be used.
    """
    if name not in STRATEGIES:
        raise InputError(f"--strategy={name} is unknown: choose from {', '.join(STRATEGIES)}")
    if tpu and name not in ("auto", "tpu"):
        raise InputError(f"--tpu={tpu} and --strategy={name} contradict each other: give one of them")
    if name == "tpu" or (name == "auto" and tpu):
        return _tpu_strategy(tpu or "local")
    if name == "multi_worker" or (name == "auto" and len(_workers()) > 1):
        return _multi_worker_strategy()
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in gpus or tf.config.list_logical_devices("CPU")])
    return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")


def _tpu_strategy(tpu: str) -> tf.distribute.TPUStrategy:
    """TPUStrategy. It initialises the system once, before any variable exists, since this wipes the TPU's memory."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise InputError(
            f"no TPU answers at --tpu={tpu} ({one_line(error)}): check the name with "
            "`gcloud compute tpus tpu-vm list`, and for --tpu=local that tensorflow-tpu is installed"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _workers() -> list[str]:
    """The addresses of all workers in TF_CONFIG; InputError if this process is not one of them."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        jobs = config.get("cluster", {})
        if jobs:
            jobs[config["task"]["type"]][int(config["task"]["index"])]
        return [*jobs.get("chief", ()), *jobs.get("worker", ())]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", '
            f'"index": 0}}}}, with a task that is in the cluster; it is {text}'
        ) from error


def _multi_worker_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    if not _workers():
        raise InputError("--strategy=multi_worker: set TF_CONFIG to the addresses of all workers and this one's index")
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(
            f"the workers {', '.join(_workers())} cannot connect ({one_line(error)}): check the "
            "addresses in TF_CONFIG, that each port is free, and that all workers are started"
        ) from error
    # All workers have the same number of batches, so they need not ask each other before every batch.
    strategy.extended.experimental_enable_get_next_as_optional = False
    return strategy


@functools.cache
def has_xla() -> bool:
    """Whether XLA can compile for this process's device; TensorFlow's TPU wheel cannot compile for CPUs."""
    try:
        tf.function(tf.identity, jit_compile=True)(0)
    except tf.errors.NotFoundError:
        return False
    return True


def require_dtype(strategy: tf.distribute.Strategy, dtype: str) -> None:
    """Raises InputError if a strategy's devices do not compute with this dtype policy."""
    if dtype == "mixed_float16" and isinstance(strategy, tf.distribute.TPUStrategy):
        raise InputError("a TPU computes in bfloat16: give --dtype=mixed_bfloat16")


def compiles(strategy: tf.distribute.Strategy) -> bool:
    """Whether the setting jit_compile makes XLA compile the functions that replicas run.

    TPUStrategy compiles by itself, and MirroredStrategy's all-reduce is not possible inside a compiled function.
    """
    return isinstance(strategy, tf.distribute.OneDeviceStrategy) and has_xla()


def on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Whether the replicas of this process are on its CPU, and so use the machine's memory."""
    return "CPU" in strategy.extended.worker_devices[0]


def run(strategy: tf.distribute.Strategy, function: Callable[..., Any], args: tuple = ()) -> Any:
    """strategy.run(function, args), with the `txl_tf.ops` for the strategy's devices."""

    def on_replica(*args: Any) -> Any:  # opened here, since MirroredStrategy traces each replica in a thread of its own
        with platform.traced_for(device):
            return function(*args)

    tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    device: platform.Target = "tpu" if tpu else "cpu" if on_cpu(strategy) else "gpu"
    return strategy.run(on_replica, args=args)


def of_first_replica(strategy: tf.distribute.Strategy, function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A tf.function without arguments: the first replica's result of `run`; args are nests of per-replica values."""

    @tf.function(autograph=False)
    def read(args: tuple) -> Any:
        results = run(strategy, function, args)
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

    return functools.partial(read, args)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes the run's files: the only one, or the first of several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict()
    return resolver.task_id == 0 and resolver.task_type == ("chief" if "chief" in jobs else "worker")


@contextlib.contextmanager
def named_lost_contact() -> Iterator[None]:
    """Turns TensorFlow's error for a lost machine of the run into an InputError."""
    try:
        yield
    except tf.errors.UnavailableError as error:
        raise InputError(
            f"a machine that this run needs cannot be reached ({one_line(error)[:200]}): find out why, and "
            "start the same command again on all machines"
        ) from error


def own_dir(strategy: tf.distribute.Strategy, model_dir: str) -> str:
    """The directory this process writes to: model_dir for the chief, a temporary directory for other workers."""
    if is_chief(strategy):
        return model_dir
    folder = tempfile.mkdtemp(prefix="txl_tf-worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def agree(strategy: tf.distribute.Strategy, number: int) -> int:
    """The largest of all workers' numbers, so that all act alike, for example when one of them received a signal."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return number
    numbers = strategy.experimental_distribute_values_from_function(lambda context: tf.constant([number]))
    return int(tf.reduce_max(gather(strategy, numbers)))


def of_chief(strategy: tf.distribute.Strategy, digits: str) -> str:
    """The chief's hexadecimal digits, on all workers. Every worker gives the same number of digits."""
    own = digits if is_chief(strategy) else "0" * len(digits)
    parts = [own[i : i + 7] for i in range(0, len(own), 7)]  # 28 bits
    return "".join(f"{agree(strategy, int(part, 16)):0{len(part)}x}" for part in parts)


def is_same(strategy: tf.distribute.Strategy, number: int) -> bool:
    """Whether all workers have the same number."""
    # Always both calls, or other workers would wait for this one.
    largest, smallest = agree(strategy, number), -agree(strategy, -number)
    return largest == smallest


def initial_state(strategy: tf.distribute.Strategy, make: Callable[[int], Any], batch_size: int) -> Any:
    """Each replica's make(number of its lanes), for a global batch of `batch_size`; computed on the replicas."""
    return on_replicas(strategy, make, lanes_per_replica(strategy, batch_size))()


def on_replicas(strategy: tf.distribute.Strategy, function: Callable, *args: Any) -> Callable[[], Any]:
    """A function without arguments that runs function(*args) on every replica; args are not tensors."""

    # A named function, since TPUStrategy needs a name. args are not passed through `run`: on a TPU numbers would become
    # tensors, and shapes computed from them would be unknown.
    def on_replica() -> Any:
        return function(*args)

    @tf.function(autograph=False)
    def on_all() -> Any:
        return strategy.run(on_replica)

    return on_all


def lanes_per_replica(strategy: tf.distribute.Strategy, batch_size: int, groups: int = 1) -> int:
    """B / replicas. InputError if not equally many go to all replicas, and on each replica to all `groups`."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * groups):
        times = f" times --accumulate_steps={groups}" if groups > 1 else ""
        raise InputError(
            f"--batch_size={batch_size} cannot be divided equally over {replicas} replicas{times}: use a multiple"
        )
    return batch_size // replicas


def gather(strategy: tf.distribute.Strategy, value: Any, axis: int = 0) -> tf.Tensor:
    """The replicas' values of a per-replica value or ON_READ variable, concatenated along an axis, in order."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        if isinstance(value, tf.Variable):
            copies = dict(zip(local_replicas(strategy), strategy.experimental_local_results(value), strict=True))
            value = strategy.experimental_distribute_values_from_function(
                lambda context: copies[context.replica_id_in_sync_group].value()
            )
        return _gathered(strategy, axis)(value)
    with tf.device("CPU:0"):
        return tf.concat(strategy.experimental_local_results(value), axis=axis)


@functools.cache
def _gathered(strategy: tf.distribute.Strategy, axis: int) -> Callable:
    # Outside a function of its own `gather` traces one in each call, for every weight of every checkpoint.
    return tf.function(lambda value: strategy.gather(value, axis=axis), autograph=False)


def gather_state(strategy: tf.distribute.Strategy, state: Any) -> Any:
    """The state of all lanes in one value, B in the order of replicas, for a checkpoint."""
    # A per-replica value cannot be saved directly: tf.train.Checkpoint refuses it, and an ON_READ variable would
    # save an aggregate of the replicas.
    return tf.nest.map_structure(lambda tensor: gather(strategy, tensor), state)


def local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """The numbers of this process's replicas among those of all workers, in the order of its local results."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return list(range(strategy.num_replicas_in_sync))
    own, resolver = len(strategy.extended.worker_devices), strategy.cluster_resolver
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", ())) if resolver.task_type == "worker" else 0
    first = (chiefs + resolver.task_id) * own
    return list(range(first, first + own))


def scatter_state(strategy: tf.distribute.Strategy, state: Any) -> Any:
    """The reverse of `gather_state`: each replica takes its lanes."""

    def own_lanes() -> Any:
        replica = tf.distribute.get_replica_context()
        return tf.nest.map_structure(lambda tensor: own_part(replica, tensor, 0), state)

    return on_replicas(strategy, own_lanes)()


def distribute_batches(
    strategy: tf.distribute.Strategy, make_dataset: Callable[..., tf.data.Dataset]
) -> tf.distribute.DistributedDataset | tf.data.Dataset:
    """The batches of make_dataset(host, num_hosts, replicas_per_host), for the replicas.

    Each host reads only its own lanes. Its replicas take alternate elements. A single CPU reads the dataset as
    it is.
    """

    @tf.autograph.experimental.do_not_convert  # nothing here needs autograph, which delays the first batch
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        hosts = context.num_input_pipelines
        replicas = context.num_replicas_in_sync // hosts
        return make_dataset(host=context.input_pipeline_id, num_hosts=hosts, replicas_per_host=replicas)

    if isinstance(strategy, tf.distribute.OneDeviceStrategy) and on_cpu(strategy):
        # A distributed iterator's GeneratorDataset makes malloc return free memory to the system at once (mallopt with
        # M_TRIM_THRESHOLD). Each training step would have to get its buffers again, page by page.
        return dataset_fn(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(dataset_fn)


def untested(ops: str) -> str | None:
    """A line for users on operations that have not run on devices like these; None: they have."""
    target = platform.program().target
    if target == "tpu":
        return "no TPU has run this yet: its programs were only compiled for one"
    if target == "gpu" and ops in ("fewer", "fused"):
        return f"--ops={ops} has not run on a GPU yet: its programs were only compiled for some"
    return None
