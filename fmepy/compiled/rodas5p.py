# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The coefficients of Rodas5P, as the sums over stages that they stand in; see `compiled.rosenbrock`."""

from __future__ import annotations

GAMMA = 0.21193756319429014
C2, C3, C4, C5 = 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664
D1, D2, D3 = GAMMA, -0.42387512638858027, -0.3384627126235924
D4, D5 = 1.8046452872882734, 2.325825639765069


def time_of(s):
    """Return where in the step stage s stands, of the first five."""
    return C2 if s == 1 else C3 if s == 2 else C4 if s == 3 else C5 if s == 4 else 0.0


def weight_of(s):
    """Return the weight of df/dt in stage s."""
    return D1 if s == 0 else D2 if s == 1 else D3 if s == 2 else D4 if s == 3 else D5 if s == 4 else 0.0


def set_argument(s, y, U, out):
    """Set out to the argument of stage s; of the last two it is that of the stage before and a little."""
    n = len(out)
    u0, u1, u2, u3, u4, u5, u6 = U[0], U[1], U[2], U[3], U[4], U[5], U[6]
    if s == 0:
        for i in range(n):
            out[i] = y[i]
    elif s == 1:
        for i in range(n):
            out[i] = y[i] + 3.0 * u0[i]
    elif s == 2:
        for i in range(n):
            out[i] = y[i] + 2.849394379747939 * u0[i] + 0.45842242204463923 * u1[i]
    elif s == 3:
        for i in range(n):
            out[i] = y[i] - 6.954028509809101 * u0[i] + 2.489845061869568 * u1[i] - 10.358996098473584 * u2[i]
    elif s == 4:
        for i in range(n):
            out[i] = (
                y[i]
                + 2.8029986275628964 * u0[i]
                + 0.5072464736228206 * u1[i]
                - 0.3988312541770524 * u2[i]
                - 0.04721187230404641 * u3[i]
            )
    elif s == 5:
        for i in range(n):
            out[i] = (
                y[i]
                - 7.502846399306121 * u0[i]
                + 2.561846144803919 * u1[i]
                - 11.627539656261098 * u2[i]
                - 0.18268767659942256 * u3[i]
                + 0.030198172008377946 * u4[i]
            )
    elif s == 6:
        for i in range(n):
            out[i] += u5[i]
    elif s == 7:
        for i in range(n):
            out[i] += u6[i]


def add_stages(s, a, U, out):
    """Add to out a times what the stages before s bring into its equation."""
    n = len(out)
    u0, u1, u2, u3, u4, u5, u6 = U[0], U[1], U[2], U[3], U[4], U[5], U[6]
    if s == 1:
        for i in range(n):
            out[i] += a * (-14.155112264123755 * u0[i])
    elif s == 2:
        for i in range(n):
            out[i] += a * (-17.97296035885952 * u0[i] - 2.859693295451294 * u1[i])
    elif s == 3:
        for i in range(n):
            out[i] += a * (147.12150275711716 * u0[i] - 1.41221402718213 * u1[i] + 71.68940251302358 * u2[i])
    elif s == 4:
        for i in range(n):
            out[i] += a * (
                165.43517024871676 * u0[i]
                - 0.4592823456491126 * u1[i]
                + 42.90938336958603 * u2[i]
                - 5.961986721573306 * u3[i]
            )
    elif s == 5:
        for i in range(n):
            out[i] += a * (
                24.854864614690072 * u0[i]
                - 3.0009227002832186 * u1[i]
                + 47.4931110020768 * u2[i]
                + 5.5814197821558125 * u3[i]
                - 0.6610691825249471 * u4[i]
            )
    elif s == 6:
        for i in range(n):
            out[i] += a * (
                30.91273214028599 * u0[i]
                - 3.1208243349937974 * u1[i]
                + 77.79954646070892 * u2[i]
                + 34.28646028294783 * u3[i]
                - 19.097331116725623 * u4[i]
                - 28.087943162872662 * u5[i]
            )
    elif s == 7:
        for i in range(n):
            out[i] += a * (
                37.80277123390563 * u0[i]
                - 3.2571969029072276 * u1[i]
                + 112.26918849496327 * u2[i]
                + 66.9347231244047 * u3[i]
                - 40.06618937091002 * u4[i]
                - 54.66780262877968 * u5[i]
                - 9.48861652309627 * u6[i]
            )


def combine(U, begin, step, k, bow, last):
    """Set the coefficients of a polynomial from the entries begin, begin + step, ... of the stages."""
    for i in range(len(k)):
        j = begin + i * step
        k0 = (
            25.948786856663858 * U[0, j]
            - 2.5579724845846235 * U[1, j]
            + 10.433815404888879 * U[2, j]
            - 2.3679251022685204 * U[3, j]
            + 0.524948541321073 * U[4, j]
            + 1.1241088310450404 * U[5, j]
            + 0.4272876194431874 * U[6, j]
            - 0.17202221070155493 * U[7, j]
        )
        k1 = (
            -9.91568850695171 * U[0, j]
            - 0.9689944594115154 * U[1, j]
            + 3.0438037242978453 * U[2, j]
            - 24.495224566215796 * U[3, j]
            + 20.176138334709044 * U[4, j]
            + 15.98066361424651 * U[5, j]
            - 6.789040303419874 * U[6, j]
            - 6.710236069923372 * U[7, j]
        )
        k2 = (
            11.419903575922262 * U[0, j]
            + 2.8879645146136994 * U[1, j]
            + 72.92137995996029 * U[2, j]
            + 80.12511834622643 * U[3, j]
            - 52.072871366152654 * U[4, j]
            - 59.78993625266729 * U[5, j]
            - 0.15582684282751913 * U[6, j]
            + 4.883087185713722 * U[7, j]
        )
        k[i], bow[i], last[i] = k0, k1 + k2, -k2
