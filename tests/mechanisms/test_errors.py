"""A refused parameter is known by its name, and the name is put into the message in one way."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError

TOP = Path(__file__).resolve().parents[2]
FIRST_WORDS = re.compile(r"(?:a )?[a-z_]+ must ")
# What draws noise and chooses has arguments, which nobody gives as a parameter.
INSIDE = {TOP / "mechanisms" / "choice" / "exponential.py", *(TOP / "mechanisms" / "randomness").glob("*.py")}


def test_a_refusal_carries_the_parameter():
    with pytest.raises(ParameterError) as refused:
        Budget(-1.0)
    assert refused.value.parameter == "epsilon"
    for error in (refused.value, pickle.loads(pickle.dumps(refused.value))):  # as a worker sends it
        assert error.parameter == "epsilon"
        assert str(error) == "epsilon must be positive, got -1.0"
        again = error.renamed("--for-epsilon")
        assert (str(again), again.parameter) == ("--for-epsilon must be positive, got -1.0", "--for-epsilon")


def test_one_of_several_and_none():
    assert str(ParameterError("a range must begin below its end", "a range").renamed("--range")) == (
        "--range must begin below its end"
    )
    of_another_start = ParameterError("'ts:quarter' is no key column", "item")
    assert str(of_another_start.renamed("--item")) == "--item: 'ts:quarter' is no key column"
    assert str(ParameterError("items are few", "item").renamed("--item")) == "--item: items are few"
    assert str(ParameterError("--item is wrong", "item").renamed("--item")) == "--item is wrong"
    error = ParameterError("give a or b")
    assert error.renamed("--a") is error


@pytest.mark.seconds
@pytest.mark.parametrize("folder", ["mechanisms", "transforms"])
def test_no_message_that_begins_with_a_parameter_is_without_its_name(folder):
    nameless = []
    for path in sorted(set((TOP / folder).rglob("*.py")) - INSIDE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ParameterError":
                message = node.args[0]
                words = message.values[0] if isinstance(message, ast.JoinedStr) else message
                begins = isinstance(words, ast.Constant) and FIRST_WORDS.match(words.value)
                if (begins or isinstance(words, ast.FormattedValue) and "must" in ast.unparse(message)) and (
                    len(node.args) + len(node.keywords) == 1
                ):
                    nameless.append(f"{path.relative_to(TOP)}:{node.lineno}")
    assert not nameless
