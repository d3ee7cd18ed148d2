"""Enumerations: members, their order, and other names for them."""

from __future__ import annotations

import copy
import pickle

import pytest

from tinygrad.fast_enum import Enum, auto


class Kind(Enum):
    FIRST = auto()
    SECOND = auto()
    OTHER = FIRST


def test_members_are_numbered_in_the_order_of_declaration() -> None:
    assert [(x.name, x.value) for x in Kind] == [("FIRST", 1), ("SECOND", 2)]
    assert len(Kind) == 2 and Kind["SECOND"] is Kind.SECOND is Kind(2)


def test_another_name_is_the_same_member() -> None:
    assert Kind.OTHER is Kind.FIRST and Kind.OTHER.name == "FIRST"
    assert pickle.loads(pickle.dumps(Kind.OTHER)) is copy.deepcopy(Kind.OTHER) is Kind.FIRST


def test_a_number_without_a_member_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 is not the value of a member of Kind"):
        Kind(3)
