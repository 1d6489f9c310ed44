"""LaTeX is sympy's work, and everything else goes without it."""

import subprocess
import sys

import pytest

from fmepy.language.display import as_sympy
from fmepy.language.text import parse_expression

WITHOUT = """
import sys
sys.modules["sympy"] = None  # an import of it fails
import numpy as np
import fmepy as fme
model = fme.OdeModel("d(x)/dt = -k * max(x, 0) + exp(-t)", state={"x": 1.0}, parms={"k": 0.5}, times=np.arange(5.0))
data = model({"k": 0.7})
fit = fme.modFit(fme.SimulationCost(model, data), p={"k": 0.5})
assert abs(fit.par["k"] - 0.7) < 1e-6, fit.par
assert "d(x)/dt" in repr(model.equations)
assert model.equations._repr_latex_() is None
"""


def test_models_and_fits_need_no_sympy():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("alpha * x_1 / beta", r"\frac{\alpha x_{1}}{\beta}"),
        ("sqrt(x)", r"\sqrt{x}"),
        ("exp(-k * t)", r"e^{- k t}"),
        ("abs(x) + floor(y)", r"\left|{x}\right| + \left\lfloor{y}\right\rfloor"),
        ("where(x > 1, x, 0)", r"\begin{cases} x & \text{for}\: x > 1 \\0 & \text{otherwise} \end{cases}"),
        ("max(x, 2)", r"\operatorname{max}{\left(x,2 \right)}"),
        ("log10(x)", r"\operatorname{log10}{\left(x \right)}"),
    ],
)
def test_expressions_have_their_latex(text, latex):
    sympy = pytest.importorskip("sympy")
    assert sympy.latex(as_sympy(parse_expression(text))) == latex


def test_a_lag_is_shown_at_its_time():
    sympy = pytest.importorskip("sympy")
    found = sympy.latex(as_sympy(parse_expression("lag(N, tau)", delays=True)))
    assert r"\right|_{t - \tau}" in found
