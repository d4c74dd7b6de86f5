"""Where a model runs: strategies, and the mems that live on their replicas."""

import tensorflow as tf

from txl_tf.errors import InputError

STRATEGIES = ("auto", "tpu", "mirrored", "one_device")


def make_strategy(name="auto", tpu=None):
    """The tf.distribute strategy to build and run a model under.

    Args:
        name: "tpu" all cores of a TPU; "mirrored" all GPUs of this machine (or its logical CPUs); "one_device" the
            first GPU or the CPU; "auto" the TPU if `tpu` is given, else mirrored where there are several GPUs, else
            one device.
        tpu: a TPU's name or address, "local" on a TPU VM; None: none.

    Raises:
        InputError: the TPU does not answer, or flags that contradict each other.
    """
    if tpu and name not in ("auto", "tpu"):
        raise InputError(f"--tpu={tpu} and --strategy={name} contradict each other: give one of them")
    if name == "tpu" or (name == "auto" and tpu):
        return _tpu_strategy(tpu or "local")
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in gpus or tf.config.list_logical_devices("CPU")])
    if name not in STRATEGIES:
        raise InputError(f"--strategy={name} is unknown: choose from {', '.join(STRATEGIES)}")
    return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")


def _tpu_strategy(tpu):
    """TPUStrategy; the system is initialised once, before any variable exists, since that wipes the TPU's memory."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(
            f"no TPU answers at --tpu={tpu} ({error}): check the name with `gcloud compute tpus tpu-vm list`, "
            "and that tensorflow-tpu is installed where 'local' is meant"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def initial_mems(strategy, model, batch_size, reach=None):
    """Every replica's first Mems, for a global batch of `batch_size`; made on the replicas themselves."""
    per_replica = lanes_per_replica(strategy, batch_size)

    @tf.function
    def make():
        return strategy.run(model.initial_mems, args=(per_replica, reach))

    return make()


def lanes_per_replica(strategy, batch_size, groups=1):
    """B / replicas.

    Raises:
        InputError: the lanes cannot be shared out equally over replicas, and within each over `groups`.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * groups):
        times = f" times --accumulate_steps={groups}" if groups > 1 else ""
        raise InputError(
            f"--batch_size={batch_size} cannot be shared out over {replicas} replicas{times}: use a multiple"
        )
    return batch_size // replicas


def gather_mems(strategy, mems):
    """All lanes' Mems in one value, B in replica order: what a checkpoint holds."""
    # A per-replica value cannot be saved as it is: tf.train.Checkpoint refuses it, and an ON_READ variable would
    # save an aggregate of the replicas.
    return tf.nest.map_structure(lambda tensor: strategy.gather(tensor, axis=0), mems)


def scatter_mems(strategy, mems):
    """The reverse of `gather_mems`: each replica takes its lanes."""

    @tf.function
    def scatter():
        def own_lanes():
            replica = tf.distribute.get_replica_context()

            def cut(tensor):
                lanes = tensor.shape[0] // replica.num_replicas_in_sync
                return tf.slice(
                    tensor,
                    [replica.replica_id_in_sync_group * lanes] + [0] * (tensor.shape.rank - 1),
                    [lanes, *tensor.shape[1:]],
                )

            return tf.nest.map_structure(cut, mems)

        return strategy.run(own_lanes)

    return scatter()


def distribute_batches(strategy, make_dataset):
    """A distributed dataset from make_dataset(host, num_hosts, replicas_per_host).

    Each host reads only its own lanes, and deals its elements to its replicas in turn.
    """

    def dataset_fn(context):
        hosts = context.num_input_pipelines
        return make_dataset(
            host=context.input_pipeline_id,
            num_hosts=hosts,
            replicas_per_host=context.num_replicas_in_sync // hosts,
        )

    return strategy.distribute_datasets_from_function(dataset_fn)
