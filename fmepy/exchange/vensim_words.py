"""Functions of Vensim and XMILE in the words of modules, by name and number of arguments.

In a template ``{0}`` is the first argument, ``{0!}`` the same in brackets where it needs them, ``{0?}`` as a condition.
Functions that only bear another name are written ``theirs/number=ours``, with the order of arguments where it differs.
"""

from __future__ import annotations

_PLAIN = """
abs/1 exp/1 ln/1=log sqrt/1 min/2 max/2 sin/1 cos/1 tan/1 arcsin/1=asin arccos/1=acos arctan/1=atan sinh/1 cosh/1 tanh/1
integer/1=trunc modulo/2=fmod mod/2=fmod log/2 step/2 ramp/2 ramp/3 delay1/2 delay1/3 delay3/2 delay3/3 trend/3
"""
_VENSIM = """
delay1i/3=delay1 delay3i/3=delay3 delay_n/4=delayn(0,1,3,2) smooth/2 smooth/3 smoothi/3=smooth smooth3/2 smooth3/3
smooth3i/3=smooth3 smooth_n/4=smoothn(0,1,3,2) delay_fixed/3 forecast/3 pulse/2
random_uniform/3=random_uniform(0,1) random_normal/5=random_normal(2,3,0,1)
"""
_XMILE = """
int/1=floor log10/1 smth1/2=smooth smth1/3=smooth smth3/2=smooth3 smth3/3=smooth3 smthn/3=smoothn smthn/4=smoothn
delayn/3 delayn/4 delay/3=delay_fixed forcst/3=forecast forcst/4=forecast
uniform/2=random_uniform uniform/3=random_uniform(0,1) random/2=random_uniform random/3=random_uniform(0,1)
normal/2=random_normal normal/3=random_normal(0,1)
"""


def _calls(*texts: str) -> dict[str, str]:
    found = {}
    for word in " ".join(texts).split():
        theirs, _, ours = word.partition("=")
        name, _, count = theirs.partition("/")
        ours, _, order = ours.rstrip(")").partition("(")
        places = order.split(",") if order else map(str, range(int(count)))
        found[theirs] = f"{ours or name}({', '.join(f'{{{k}}}' for k in places)})"
    return found


_BOTH = _calls(_PLAIN) | {
    "quantum/2": "{1!} * trunc({0!} / {1!})",
    "if_then_else/3": "where({0?}, {1}, {2})",
    "zidz/2": "where(abs({1}) < 1e-06, 0, {0!} / {1!})",
    "xidz/3": "where(abs({1}) < 1e-06, {2}, {0!} / {1!})",
}
WORDS = {
    "mdl": _BOTH | _calls(_VENSIM) | {
        "game/1": "{0!}",
        "reinitial/1": "initial({0})",
        "power/2": "{0!}^{1!}",
        "random_0_1/0": "random_uniform(0, 1)",
        "sample_if_true/3": "sample({0?}, {1}, {2})",
    },
    "xmile": _BOTH | _calls(_VENSIM, _XMILE) | {
        "safediv/2": "where({1!} == 0, 0, {0!} / {1!})",
        "safediv/3": "where({1!} == 0, {2}, {0!} / {1!})",
        "delay/2": "delay_fixed({0}, {1}, initial({0}))",
        "previous/2": "delay_fixed({0}, dt, {1})",
        "trend/2": "trend({0}, {1}, 0)",
        "round/1": "floor({0!} + 0.5)",
        "sinwave/2": "{0!} * sin(2 * pi * t / {1!})",
        "coswave/2": "{0!} * cos(2 * pi * t / {1!})",
        "pulse/1": "{0!} / dt * pulse(t_start, dt)",
        "pulse/2": "{0!} / dt * pulse({1}, dt)",
        "pulse/3": "{0!} / dt * pulse({1}, dt, {2}, t_end + dt)",
    },
}  # fmt: skip
"""By dialect the template of a function, by ``name/number of arguments``."""
_BY_CELL = [f"get_{how}_{what}" for how in ("xls", "direct") for what in ("data", "constants", "lookups", "subscript")]
_OTHER_RUN = "it reads the data of another run"
REFUSED = {
    **dict.fromkeys(_BY_CELL, "it reads a file cell by cell; write the numbers into the model"),
    **dict.fromkeys(("get_data_at_time", "get_data_between_times", "get_data_last_time"), _OTHER_RUN),
    **dict.fromkeys(("allocate_available", "allocate_by_priority", "find_market_price"), "allocation has no word here"),
    "invert_matrix": "matrices are not inverted here", "a_function_of": "the equation is not complete",
}  # fmt: skip
"""Functions that are refused by name, and why."""
START = {
    "initial": 0, "init": 0, "reinitial": 0, "active_initial": 1, "previous": 1, "smoothn": 3, "smthn": 3, "delayn": 3,
    **dict.fromkeys(("smooth", "smoothi", "smooth3", "smooth3i", "smooth_n", "smth1", "smth3", "delay1", "delay1i"), 2),
    **dict.fromkeys(("delay3", "delay3i", "delay_n", "delay_fixed", "delay", "sample_if_true"), 2),
}  # fmt: skip
"""Which argument a function with a memory is at the start; the first where it has not as many."""
FROM_START = ("smooth", "smooth3", "delay1", "delay3", "smth1", "smth3")
"""Functions that start with what their first argument is, unless a third one says more."""
LEVELS = {
    "delay3": (3, 0, 2), "delay3i": (3, 0, 2), "delay_n": (0, 3, 2), "delayn": (0, 2, 3), "smooth_n": (0, 3, 2),
    "smthn": (0, 2, 3),
}  # fmt: skip
"""Functions of several levels: their order, or the argument that says it, and the argument of their start."""
