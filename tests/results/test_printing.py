"""Numbers look as in R."""

import numpy as np

from fmepy.results.printing import coefficient_table, common, fixed_matrix, p_values, significant


def test_a_column_shares_its_decimals():
    assert common([0.01564307, 17.91186], 4) == ["0.01564", "17.91186"]
    assert common([1.0, 2.0], 4) == ["1", "2"]
    assert common([123456.0, 0.5], 4) == ["123456.0", "0.5"] or common([123456.0, 0.5], 4)[1].strip() == "0.5"
    assert common([np.nan, 1.5], 4) == ["NA", "1.5"]


def test_p_values_are_fixed_scientific_or_below_the_epsilon():
    assert p_values(np.array([0.000242333, 0.0408620, 1.5e-69, 5.31e-06])) == [
        "0.000242",
        "0.040862",
        "< 2e-16",
        "5.31e-06",
    ]
    assert p_values(np.array([np.nan])) == ["NA"]


def test_the_table_of_monod_is_laid_out_as_by_R():
    table = np.array([[0.145419672, 0.015643129, 9.29607, 0.000242334], [49.0529157, 17.9119552, 2.738557, 0.0408621]])
    assert coefficient_table(
        ["mumax", "ks"], table, ["Estimate", "Std. Error", "t value", "Pr(>|t|)"]
    ).splitlines() == [
        "      Estimate Std. Error t value Pr(>|t|)",
        "mumax  0.14542    0.01564   9.296 0.000242",
        "ks    49.05292   17.91196   2.739 0.040862",
    ]


def test_matrices_have_a_format_per_column():
    assert fixed_matrix(["a", "b"], np.array([[1, 0.892636], [0.892636, 1]])).splitlines()[1] == "a 1.0000 0.8926"
    assert significant(0.0127810148, 4) == "0.01278"
