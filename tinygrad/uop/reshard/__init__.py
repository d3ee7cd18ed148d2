"""Layout decisions: which layout a value goes to, and why. All of them are made here.

Input: nodes that an op is about to use. Output: the same logical values, with the COPYs and
ALLREDUCEs that the op needs. Invariants: communication keeps the logical value; of the layouts that
serve, the one that moves the fewest bytes is chosen; `SHARDING="strict"` turns implicit transfers
into errors.

    caller                     question                                    function
    -------------------------  ------------------------------------------  -------------------------
    alu()                      which common layout do operands go to?      reshard_to_common_layout
    matmul, conv2d, einsum     the same, if the product is then summed     reshard_for_product
    custom_kernel              which layouts does the rule give operands?  layouts_for_custom_kernel
                               an operand in that layout                   reshard_for_custom_kernel
    movement methods           which layout can the movement follow?       reshard_for_movement
    slices, flips              do elements move before them, or after?     move_kept
    slices with a step         the same                                    slice_with_steps
    reshape                    is the reshape of a padded array cheaper?   reshape_padded
    bitcast                    are shards whole elements of the dtype?     reshard_for_bitcast
    assign                     how does the value get to the buffer?       reshard_for_assign
    to, shard, copy_to_device  the layout that the user says               copy
    every op that computes     where do operands in files go?              off_files
    an op of one operand       the same                                    off_file
    to, from a file            which views are behind the copy?            read_file
    zeros_like, clone          where is a new value like one in a file?    computing_device
    gather, scatter of nodes   see uop/gather_scatter.py                   reshard, unsharded_layout
    sort                       which axis is sharded instead?              unshard_axis
    topk                       are k all-reduces cheaper than that?        topk_moves_less
    cumsum, logcumsumexp, ...  how many shards are scanned?                shard_count
                               where do the totals of the shards go?       reshard_scan_totals
                               where do the offsets of the shards go?      reshard_like
    interpolate, pad           which ranges of rows do devices read?       choose_ranges
    Tensor.gather, scatter     which axes are batch axes?                  any_sharded
    x[...] = v                 is the slice a view or a resharded copy?    slices_shards
    svd, winograd, x[list]     constants beside a sharded operand          device_value.replicated
    gradient of COPY           does the gradient go back, or stay?         gradient_of_copy
    gradient of ALLREDUCE      where do partial sums get theirs?           gradient_of_allreduce
    gradient of max            are partial maxima comparable?              fully_reduced
    backward, gradient         which layout has a parameter's gradient?    gradient_like

The layout of a result, given its sources, is not a decision: `device_rules.py` computes it. The
functions are in `move.py` (one value), `operands.py`, `axes.py`, `movement.py`, `gradients.py` and
`files.py` (values in files).
"""

from tinygrad.uop.reshard.axes import (
    any_sharded,
    reshard_for_bitcast,
    reshard_like,
    reshard_scan_totals,
    shard_count,
    slices_shards,
    topk_moves_less,
    unshard_axis,
    unsharded_layout,
)
from tinygrad.uop.reshard.files import FILE_VIEWS, computing_device, off_file, off_files, read_file
from tinygrad.uop.reshard.gradients import (
    fully_reduced,
    gradient_like,
    gradient_of_allreduce,
    gradient_of_copy,
)
from tinygrad.uop.reshard.move import (
    can_shard,
    copy,
    device_mismatch,
    record_user_line,
    reshard,
    reshard_for_assign,
    sent_nbytes,
    without_placement,
)
from tinygrad.uop.reshard.movement import (
    move_kept,
    reshape_padded,
    reshard_for_movement,
    slice_with_steps,
)
from tinygrad.uop.reshard.operands import (
    layouts_for_custom_kernel,
    reshard_for_custom_kernel,
    reshard_for_product,
    reshard_to_common_layout,
)

__all__ = [
    "FILE_VIEWS",
    "any_sharded",
    "can_shard",
    "computing_device",
    "copy",
    "device_mismatch",
    "fully_reduced",
    "gradient_like",
    "gradient_of_allreduce",
    "gradient_of_copy",
    "layouts_for_custom_kernel",
    "move_kept",
    "off_file",
    "off_files",
    "read_file",
    "record_user_line",
    "reshape_padded",
    "reshard",
    "reshard_for_assign",
    "reshard_for_bitcast",
    "reshard_for_custom_kernel",
    "reshard_for_movement",
    "reshard_for_product",
    "reshard_like",
    "reshard_scan_totals",
    "reshard_to_common_layout",
    "sent_nbytes",
    "shard_count",
    "slice_with_steps",
    "slices_shards",
    "topk_moves_less",
    "unshard_axis",
    "unsharded_layout",
    "without_placement",
]
