"""Tests of sharded programs: values, gradients, and the bytes of each collective.

What a layout is for, and where its tests are:

    data parallelism, ZeRO, FSDP         training/test_data_parallel.py
    synchronized batch normalization
    accumulated gradients, tied weights
    column and row parallelism           training/test_tensor_parallel.py
    a Megatron block, partial sums
    sequence parallelism, Ulysses
    data and tensor parallelism
    a sharded vocabulary, sharded heads
    resharding, reshapes                 communication/test_resharding.py
    expert parallelism
    training to inference layouts        communication/test_between_meshes.py
    transfers between meshes
    pipelines, of tensor-parallel stages training/test_pipeline.py
    a key-value cache                    execution/test_kv_cache.py
    sizes that do not divide evenly      communication/test_sharded_axis.py
    every op, axis and layout            operations/test_every_op.py
"""
