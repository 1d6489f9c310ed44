"""World3's standard run by pyworld3 (pip install pyworld3==1.1) -> standard_run.csv; see ../README.md.

`starts` "as published": pyworld3 as it is. "book": its smooths and its delay begin where the book's do, and what
changes in 1940 does so at 1940.0.
"""

import csv
from pathlib import Path

from pyworld3 import World3
from pyworld3.specials import Delay3, Smooth

VARIABLES = [
    *("p1", "p2", "p3", "p4", "pop", "le", "tf", "iopc", "sopc", "fpc", "ic", "sc", "al", "pal", "uil", "lfert", "ly"),
    *("lufd", "aiph", "nr", "fcaor", "ppol", "ppapr"),
]


class StartsAt(Smooth):
    """A smooth that starts from a given value, not from its input."""

    def __init__(self, smooth, start):
        self.__dict__.update(smooth.__dict__)
        self.start = start

    def __call__(self, k, delay):
        if k > 0:
            return super().__call__(k, delay)
        self.out_arr[0] = self.start
        return self.start


class InEquilibrium(Delay3):
    """A delay whose outflow is its inflow at the start."""

    def __init__(self, delay):
        self.__dict__.update(delay.__dict__)

    def _init_out_arr(self, delay):
        self.out_arr[0, :] = self.in_arr[0]


def standard_run(starts):
    """Return a run of pyworld3 from 1900 to 2100 by steps of half a year."""
    is_book = starts == "book"
    world = World3(year_min=1900, year_max=2100, dt=0.5, pyear=1975, iphst=1939.75 if is_book else 1940)
    world.init_world3_constants()
    world.init_world3_variables()
    world.set_world3_table_functions()
    world.set_world3_delay_functions()
    if is_book:
        world.smooth_luf = StartsAt(world.smooth_luf, 1.0)
        world.smooth_cai = StartsAt(world.smooth_cai, 5e9)
        world.smooth_fr = StartsAt(world.smooth_fr, 1.0)
        world.delay3_ppgr = InEquilibrium(world.delay3_ppgr)
    world.run_world3()
    return world


if __name__ == "__main__":
    with (Path(__file__).parent / "standard_run.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["starts", "time", *VARIABLES])
        for starts in ("book", "as published"):
            world = standard_run(starts)
            for k in range(0, len(world.time), 20):
                rows.writerow([starts, *(f"{getattr(world, name)[k]:.12g}" for name in ("time", *VARIABLES))])
