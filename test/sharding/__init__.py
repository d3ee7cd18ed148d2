"""Tests of sharded programs: values, gradients, and the bytes of each collective.

Many tests belong to one of 25 numbered scenarios, and start with its number. In
`test_scenarios_data_parallel.py`:

- 01 data parallelism, 02 ZeRO, 03 fully sharded (FSDP)
- 16 batch normalization, 25 sums that are reduced once: accumulated gradients, tied weights

In `test_scenarios_tensor_parallel.py`:

- 04 column parallel, 05 row parallel, 06 a Megatron block, 07 partial sums count once
- 08 sequence parallelism, 09 data and tensor parallelism on one mesh
- 17 vocabulary-parallel embedding, 18 vocabulary-parallel cross-entropy
- 19 attention with sharded heads, 20 attention with sharded sequences (Ulysses)

In `test_scenarios_layouts.py`, 10 resharding, 13 expert parallelism, 24 reshapes. In
`test_between_meshes.py`, 11 from training to inference layouts, 12 transfers between meshes. In
`test_pipeline.py`, 14 pipelines, 15 pipelines of tensor-parallel stages. In
`test_scenarios_cache.py`, 21 a key-value cache. In `test_sharded_axis.py`, 22 sizes that do not
divide evenly. In `test_every_op.py`, 23 every op along every axis in every layout.
"""
