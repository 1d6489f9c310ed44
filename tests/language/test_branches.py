"""In which branches parts of expressions stand: the same as by going every way, at the cost of looking at each once."""

from itertools import product

import pytest

from fmepy.language.branches import ALWAYS, Branches, Within, is_branching
from fmepy.language.equations import symbol
from fmepy.language.nodes import HALF, Mode, call

x, y = symbol("x"), symbol("y")
a, b, c = (Mode(k) for k in "abc")
half = HALF
root = x**0.5


def where(mode, yes, no):
    return call("where", mode, half, yes, no)


def holds(branches, case, values):
    made = branches.cases[case]
    if isinstance(made, Within):
        return values[made.mode] == made.value and holds(branches, made.case, values)
    return case == ALWAYS or any(holds(branches, i, values) for i in made)


def is_taken(e, part, values):
    if e == part:
        return True
    if is_branching(e):
        mode, _, yes, no = e.args
        return is_taken(yes if values[mode] else no, part, values)
    return any(is_taken(arg, part, values) for arg in e.args)


@pytest.mark.parametrize(
    "e",
    [
        where(a, root, y),
        where(a, root, y) + where(b, root + 1, y),
        where(a, where(b, root, y), y * root),
        where(a, where(b, y, 2 * root), y) + where(c, root**3, where(a, y, root + y)),
        where(a, where(a, root, y), where(b, where(c, root + 1, y), y)),
        where(a, y, where(b, y, where(c, y, root))) + where(a, where(b, root, y), y),
        call("exp", where(a, where(b, root, y), y) * where(c, root, y + 1)),
    ],
)
def test_a_part_is_taken_where_a_way_to_it_is(e):
    branches = Branches([e], lambda part: part == root)
    for values in product((True, False), repeat=3):
        modes = dict(zip((a, b, c), values, strict=True))
        assert holds(branches, branches.case[root], modes) == is_taken(e, root, modes)


def test_what_stands_in_all_branches_is_always_taken():
    for e in (
        where(a, root, -root),
        where(a, root + 1, where(b, root * y, where(c, root - 1, 3 * root))),
        where(a, where(b, root * 2, root), root + 1),
        root + where(a, root * y, y),
    ):
        assert Branches([e], lambda part: part == root).case[root] == ALWAYS


def test_a_mode_that_has_a_value_is_known():
    inner = where(b, root, y)
    branches = Branches([where(a, inner, y)], lambda part: part == root)
    assert branches.value_of(a, branches.case[inner]) is True
    assert branches.value_of(b, branches.case[inner]) is None
    assert root not in Branches([where(a, where(a, y, root), y)], lambda part: part == root).case  # never taken


def test_a_chain_of_choices_costs_what_it_holds():
    modes = [Mode(f"m{i}") for i in range(60)]
    e = x
    for m in modes:
        e = where(m, e**0.5, e + y)  # in both branches: 2**60 ways
    branches = Branches([e], lambda part: part.word == "**")
    assert len(branches.cases) <= 1 + 2 * len(modes)
    assert branches.ways > 2**59
    assert branches.case[root] != ALWAYS
