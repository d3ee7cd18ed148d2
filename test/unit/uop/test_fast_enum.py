"""Enumerations with members that are plain attributes of their class."""

import copy
import pickle

import pytest

from tinygrad.uop import Ops
from tinygrad.uop.args import AxisType


def test_members_are_singletons_in_the_order_of_declaration() -> None:
    assert [member.value for member in Ops] == list(range(1, len(Ops) + 1))
    assert [*AxisType][:2] == [AxisType.GLOBAL, AxisType.LOCAL]
    for member in Ops:
        assert Ops[member.name] is Ops(member.value) is getattr(Ops, member.name) is member
        assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is member
        assert isinstance(member, Ops) and member in Ops and member not in AxisType
    assert (str(Ops.SINK), repr(Ops.SINK)) == ("Ops.SINK", "<Ops.SINK: 1>")
    with pytest.raises(ValueError, match="0 is not the value"):
        Ops(0)


def test_a_member_is_loaded_without_a_call() -> None:
    # a metaclass with `__getattr__` makes every access of an attribute of the class a call
    assert not hasattr(type(Ops), "__getattr__")
