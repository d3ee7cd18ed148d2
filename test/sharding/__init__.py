"""Tests of sharded programs: values, gradients, and the bytes of each collective.

What a layout is for, and where its tests are:

    data parallelism, ZeRO, FSDP         test_data_parallel.py
    synchronized batch normalization
    accumulated gradients, tied weights
    column and row parallelism           test_tensor_parallel.py
    a Megatron block, partial sums
    sequence parallelism, Ulysses
    data and tensor parallelism
    a sharded vocabulary, sharded heads
    resharding, reshapes                 test_resharding.py
    expert parallelism
    training to inference layouts        test_between_meshes.py
    transfers between meshes
    pipelines, of tensor-parallel stages test_pipeline.py
    a key-value cache                    test_kv_cache.py
    sizes that do not divide evenly      test_sharded_axis.py
    every op, axis and layout            test_every_op.py
"""
