"""Tests of sharded programs: values, gradients, and the bytes of each collective.

The names of many tests start with the number of one of 25 scenarios:

    01 data parallelism                      test_data_parallel.py
    02 ZeRO
    03 fully sharded (FSDP)
    16 batch normalization
    25 accumulated gradients, tied weights
    04 column parallel, 05 row parallel      test_tensor_parallel.py
    06 a Megatron block
    07 partial sums count once
    08 sequence parallelism
    09 data and tensor parallelism
    17 vocabulary-parallel embedding
    18 vocabulary-parallel cross-entropy
    19 attention with sharded heads
    20 attention with sharded sequences
    10 resharding                            test_resharding.py
    13 expert parallelism
    24 reshapes
    11 training to inference layouts         test_between_meshes.py
    12 transfers between meshes
    14 pipelines                             test_pipeline.py
    15 pipelines of tensor-parallel stages
    21 a key-value cache                     test_kv_cache.py
    22 sizes that do not divide evenly       test_sharded_axis.py
    23 every op, axis and layout             test_every_op.py
"""
