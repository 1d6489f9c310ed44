"""What a modular model shows of itself: its maps, diagnostics and loops; and what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.checks import whole_number
from fmepy.dmi.diagnostics import Diagnostic, diagnostics_table
from fmepy.dmi.modules import AnyModule
from fmepy.dmi.variables import ModuleSystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ModelViews:
    """A system of modules and its data as tables, pictures and files."""

    system: ModuleSystem
    units: pd.Series[str]
    _found: tuple[Diagnostic, ...]
    _arguments: dict[str, Any]

    @property
    def given(self) -> tuple[AnyModule, ...]:
        """The modules as they were given, whose tables do not have the dims of the data base yet."""
        return tuple(self._arguments["modules"])

    @property
    def arguments(self) -> dict[str, Any]:
        """What the model was made of."""
        return dict(self._arguments)

    def write(self, folder: str | Path) -> Path:
        """Write the model into a folder, from which it is read to the same numbers.

        Parameters
        ----------
        folder : str or Path
            Made if it is not there. Files that are there already are not written over.

        Returns
        -------
        Path
            ``model.toml``, for ``fmepy run``; beside it a file ``.fme`` for each module, and in the folder ``data`` the
            data base, with the values that the parameters of this model have.

        Raises
        ------
        ModelError
            A file of these names is there; a module that is a Python function.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import fmepy as fme
        >>> model = fme.dmi.ModularModel([fme.dmi.Module("m", "y = k * t")], {"k": 2.0}, times=[0, 1], dt=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(model.write(folder).read_text())
        ...     print(pathlib.Path(folder, "data", "constants.csv").read_text())
        modules = ["m.fme"]
        data = ["data/"]
        times = { start = 0.0, stop = 1.0, step = 1.0 }
        dt = 1.0
        <BLANKLINE>
        name,value
        k,2.0
        <BLANKLINE>
        """
        from fmepy.dmi.writing import write_model

        return write_model(self, folder)  # type: ignore[arg-type]  # which it is a part of

    @property
    def variable_map(self) -> pd.DataFrame:
        """The global variable map: a row a variable, its dimensions, its unit where any is known, a column a module."""
        out = self.system.variable_map
        if len(self.units):
            out.insert(1, "unit", [self.units.get(name, "") for name in out.index])
        return out

    @property
    def element_map(self) -> pd.DataFrame:
        """The map by element of arrays."""
        return self.system.element_map

    @property
    def diagnostics(self) -> pd.DataFrame:
        """Problems found between modules and data: kind level variable modules file line message."""
        return diagnostics_table(self._found)

    def plot_map(self, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the variable map: modules as boxes, variables as arrows; return the Axes."""
        from fmepy.plotting.dmi import plot_map

        axes: Axes = plot_map(self.system, ax=ax, **kwargs)
        return axes

    def feedback_loops(self, most: int = 100) -> pd.DataFrame:
        r"""Return the shortest feedback loops, a row each: loop, length, kind.

        Parameters
        ----------
        most : int
            How many at most, the shortest first.

        Returns
        -------
        DataFrame
            ``loop``: its variables as a text, ``a → b → a``, from a level on; smooths and delays are passed, not named.
            ``length``: how many variables. ``kind``: "reinforcing" where a push comes back larger, "balancing" where it
            comes back turned round, by the derivatives of its links along a run; "changing" where these change sign,
            "inactive" where they are zero, "unknown" where they cannot be had (Python modules, a model that does not
            run).

        Notes
        -----
        The loops are the shortest ones through each link, not all there are, which can be more than anybody counts
        (compare the shortest independent loops of R. Oliva 2004, System Dynamics Review 20).

        Examples
        --------
        >>> import fmepy as fme
        >>> rabbits = fme.dmi.Module("rabbits", "d(N)/dt = births - N / 4\nbirths = 0.5 * N * (1 - N / 100)\nN(0) = 10")
        >>> fme.dmi.ModularModel([rabbits], times=[0, 10, 20], dt=0.5).feedback_loops()
                     loop  length         kind
        0           N → N       1    balancing
        1  N → births → N       2  reinforcing
        """
        from fmepy.dmi.feedback import feedback_loops

        return feedback_loops(self, whole_number(most, "most", 1))  # type: ignore[arg-type]  # likewise
