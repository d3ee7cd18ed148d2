"""Tables of facts about nodes, which keep no node alive."""

import weakref

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop.node_table import NodeRegistry, NodeTable
from tinygrad.uop.ops import UOp


def new_node() -> UOp:
    return UOp.new_buffer("CPU", (1,), dtypes.float)


def test_entries_belong_to_their_table_and_can_be_removed() -> None:
    one, other = NodeTable[str](), NodeTable[str]()
    node = new_node()
    one[node] = "a"
    assert (one.get(node), one[node], node in one) == ("a", "a", True)
    assert (other.get(node), node in other, other.pop(node)) == (None, False, None)
    with pytest.raises(KeyError):
        other[node]
    assert (one.pop(node), one.get(node), node in one) == ("a", None, False)


def test_entries_end_with_their_node() -> None:
    table = NodeRegistry[UOp]()
    key, value = new_node(), new_node()
    ref = weakref.ref(value)
    table[key] = value
    del value
    assert table and ref() is not None
    del key
    assert not table and ref() is None and table.nodes() == []


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_a_registry_lists_its_entries_in_the_order_in_which_they_were_made(count: int) -> None:
    table = NodeRegistry[int]()
    nodes = [new_node() for _ in range(count)]
    for number, node in enumerate(nodes):
        table[node] = number
        table[new_node()] = -1
    assert table.items() == [(node, number) for number, node in enumerate(nodes)]
    first = nodes.pop(0)
    table.pop(first)
    assert table.nodes() == nodes
    table[first] = 0
    assert table.nodes() == [*nodes, first]
    # references to nodes that are gone are dropped
    assert len(table._refs) <= 4 * (count + 4)
