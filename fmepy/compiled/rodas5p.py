# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The coefficients of Rodas5P, as the sums over stages that they stand in; see `compiled.rosenbrock`."""

from __future__ import annotations

from fmepy.compiled.kernels import independent, weighted

GAMMA = 0.21193756319429014
C2, C3, C4, C5 = 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664
D1, D2, D3 = GAMMA, -0.42387512638858027, -0.3384627126235924
D4, D5 = 1.8046452872882734, 2.325825639765069
A = (
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946),
    (0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
)  # fmt: skip
"""Of the arguments of stages 1 to 7; of the last two from the argument of the stage before."""
C = (
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662),
    (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627),
)  # fmt: skip
"""Of the equations of stages 1 to 7."""
H = (
    (25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204, 0.524948541321073,
     1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
    (-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796, 20.176138334709044,
     15.98066361424651, -6.789040303419874, -6.710236069923372),
    (11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643, -52.072871366152654,
     -59.78993625266729, -0.15582684282751913, 4.883087185713722),
)  # fmt: skip
"""Of the polynomial within a step."""


def time_of(s):
    """Return where in the step stage s stands, of the first five."""
    return C2 if s == 1 else C3 if s == 2 else C4 if s == 3 else C5 if s == 4 else 0.0


def weight_of(s):
    """Return the weight of df/dt in stage s."""
    return D1 if s == 0 else D2 if s == 1 else D3 if s == 2 else D4 if s == 3 else D5 if s == 4 else 0.0


def begin_stage(s, inverse, y, U, x, out):
    """Set x to the argument of stage s, and out to what the stages before it bring into its equation.

    Of the last two stages the argument is that of the stage before, which x must hold, and a little.
    """
    if s == 0:
        for i in range(len(x)):
            x[i], out[i] = y[i], 0.0
    elif s == 1:
        _set_sums(A[0], C[0], inverse, y, U, x, out)
    elif s == 2:
        _set_sums(A[1], C[1], inverse, y, U, x, out)
    elif s == 3:
        _set_sums(A[2], C[2], inverse, y, U, x, out)
    elif s == 4:
        _set_sums(A[3], C[3], inverse, y, U, x, out)
    elif s == 5:
        _set_sums(A[4], C[4], inverse, y, U, x, out)
    elif s == 6:
        _set_sums(A[5], C[5], inverse, x, U, x, out)
    elif s == 7:
        _set_sums(A[6], C[6], inverse, x, U, x, out)


def _set_sums(a, c, inverse, y, U, x, out):
    for i in independent(len(x)):
        x[i], out[i] = weighted(a, U, i, y[i]), inverse * weighted(c, U, i)


def combine(U, begin, step, k, bow, last):
    """Set the coefficients of a polynomial from the entries begin, begin + step, ... of the stages."""
    for i in independent(len(k)):
        j = begin + i * step
        k1, k2 = weighted(H[1], U, j), weighted(H[2], U, j)
        k[i], bow[i], last[i] = weighted(H[0], U, j), k1 + k2, -k2
