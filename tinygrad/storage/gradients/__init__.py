"""Gradients through values that were stored or overwritten.

Storing a value in a BUFFER changes no gradient: if the value requires one, the node that was stored
is kept beside the graph as the definition of the BUFFER, and gradients go on through it.

    grad_mode.py           which tensors require a gradient; `Tensor.no_grad()`
    leaves.py              leaves, where histories end, and writes to them
    history.py             records, rebuilds and ends the definitions of BUFFERs
    known_histories.py         the definitions, and why other BUFFERs have none
    undecided.py               the limits of those whose tensors may or may not require a gradient
    stored_values.py       which stored values need a definition, and what writes left in memory
    wanted_nodes.py        whether some nodes are the values of tensors that require a gradient
    backward.py            gradients along definitions
    partial_gradients.py   gradients stored as partial sums, `Tensor.accumulate_gradients()`

A definition reads the content that its value was computed from: a BUFFER that is overwritten is
replaced in it by a placeholder without memory. Leaves, and values that require no gradient, have
no history. `backward()` drops the histories that it goes through.
"""
