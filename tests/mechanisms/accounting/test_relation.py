import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError


def test_parse_takes_names_and_relations():
    assert Relation.parse("add-remove") is Relation.ADD_REMOVE
    assert Relation.parse("replace") is Relation.REPLACE
    assert Relation.parse(Relation.REPLACE) is Relation.REPLACE


@pytest.mark.parametrize("value", ["", "Replace", "add_remove", None, 1])
def test_parse_refuses_and_echoes_anything_else(value):
    with pytest.raises(ParameterError, match="'add-remove' or 'replace'") as error:
        Relation.parse(value)
    assert repr(value) in str(error.value)


def test_users_in_which_neighbours_differ():
    assert Relation.ADD_REMOVE.users == 1
    assert Relation.REPLACE.users == 2
