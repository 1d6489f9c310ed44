"""Words of Vensim and Stella, and what says the same in a module: what a text that has one is answered with."""

from __future__ import annotations

import re

FOREIGN = {
    "INTEG(flow, start)": "d(x)/dt = flow, x(0) = start",
    "ACTIVE INITIAL(x, x0)": "y = x, y(0) = x0",
    "IF THEN ELSE(c, a, b)": "where(c, a, b)",
    "SAMPLE IF TRUE(c, x, x0)": "sample(c, x, x0)",
    "XIDZ(a, b, c)": "where(b == 0, c, a / b)",
    "ZIDZ(a, b)": "where(b == 0, 0, a / b)",
    "SAFEDIV(a, b)": "where(b == 0, 0, a / b)",
    "MODULO(a, b)": "fmod(a, b)",
    "INTEGER(x)": "trunc(x)",
    "INT(x)": "floor(x)",
    "QUANTUM(a, b)": "b * trunc(a / b)",
    "POWER(a, b)": "a ** b",
    "LN(x)": "log(x)",
    "LOG(x, base)": "log(x, base)",
    "ARCSIN(x)": "asin(x)",
    "ARCCOS(x)": "acos(x)",
    "ARCTAN(x)": "atan(x)",
    "DELAY1I(x, tau, x0)": "delay1(x, tau, x0)",
    "DELAY3I(x, tau, x0)": "delay3(x, tau, x0)",
    "DELAY N(x, tau, x0, n)": "delayn(x, tau, n, x0)",
    "DELAY FIXED(x, tau, x0)": "delay_fixed(x, tau, x0)",
    "DELAY(x, tau, x0)": "delay_fixed(x, tau, x0)",
    "PREVIOUS(x, x0)": "delay_fixed(x, dt, x0)",
    "SMOOTHI(x, tau, x0)": "smooth(x, tau, x0)",
    "SMOOTH3I(x, tau, x0)": "smooth3(x, tau, x0)",
    "SMOOTH N(x, tau, x0, n)": "smoothn(x, tau, n, x0)",
    "SMTH1(x, tau, x0)": "smooth(x, tau, x0)",
    "SMTH3(x, tau, x0)": "smooth3(x, tau, x0)",
    "SMTHN(x, tau, n, x0)": "smoothn(x, tau, n, x0)",
    "FORCST(x, tau, horizon)": "forecast(x, tau, horizon)",
    "INIT(x)": "initial(x)",
    "REINITIAL(x)": "initial(x)",
    "GAME(x)": "x",
    "PULSE TRAIN(start, width, interval, end)": "pulse(start, width, interval, end)",
    "WITH LOOKUP(x, ((0,0),(1,2)))": "table(x, [(0, 0), (1, 2)])",
    "LOOKUP EXTRAPOLATE(effect, x)": 'effect(x, "extrapolate")',
    "RANDOM UNIFORM(lo, hi, seed)": "random_uniform(lo, hi)",
    "RANDOM NORMAL(lo, hi, m, sd, seed)": "random_normal(m, sd, lo, hi)",
    "NORMAL(m, sd)": "random_normal(m, sd)",
    "VMIN(x[range!])": "min(x[:])",
    "VMAX(x[range!])": "max(x[:])",
    "TIME STEP": "dt",
    "INITIAL TIME": "t_start",
    "FINAL TIME": "t_end",
}
"""What is written there, and here."""
_OURS = {theirs.partition("(")[0]: (theirs, ours) for theirs, ours in FOREIGN.items()}


def _pattern(word: str) -> str:
    return word.replace(" ", r"[\s_]+") + (r"(?=\s*\()" if "(" in _OURS[word][0] else r"(?!\w)")


_WORDS = re.compile(rf"(?<![\w.])({'|'.join(map(_pattern, sorted(_OURS, key=len, reverse=True)))})", re.IGNORECASE)


def foreign_word(text: str, known: set[str]) -> tuple[int, str] | None:
    """Return where a word of Vensim or Stella stands in a text, and what to write for it; None where there is none.

    Parameters
    ----------
    known : set of str
        Our own words.
    """
    for match in _WORDS.finditer(text):
        if match[1] in known:
            continue
        theirs, ours = _OURS[" ".join(re.split(r"[\s_]+", match[1].upper()))]
        return match.start(1), f"{theirs} is written {ours} here"
    return None
