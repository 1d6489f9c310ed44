"""STAT5 dimerisation (Boehm et al. 2014) from its PEtab tables, see tests/reference/petab/README.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

import fmepy as fme

FOLDER = Path(__file__).parents[1] / "reference" / "petab" / "Boehm_JProteomeRes2014"
LOGLIK = -138.221997031  # by tight integration

EQUATIONS = """
phos = 1.25e-7 * exp(-Epo_degradation_BaF3 * t) * k_phos
d(STAT5A)/dt = -2*phos*STAT5A**2 - phos*STAT5A*STAT5B + (0.45/1.4)*(2*k_exp_homo*nucpApA + k_exp_hetero*nucpApB)
d(STAT5B)/dt = -2*phos*STAT5B**2 - phos*STAT5A*STAT5B + (0.45/1.4)*(2*k_exp_homo*nucpBpB + k_exp_hetero*nucpApB)
d(pApB)/dt = phos*STAT5A*STAT5B - k_imp_hetero*pApB
d(pApA)/dt = phos*STAT5A**2 - k_imp_homo*pApA
d(pBpB)/dt = phos*STAT5B**2 - k_imp_homo*pBpB
d(nucpApA)/dt = (1.4/0.45)*k_imp_homo*pApA - k_exp_homo*nucpApA
d(nucpApB)/dt = (1.4/0.45)*k_imp_hetero*pApB - k_exp_hetero*nucpApB
d(nucpBpB)/dt = (1.4/0.45)*k_imp_homo*pBpB - k_exp_homo*nucpBpB
"""


def table(what: str) -> pd.DataFrame:
    """Return one of the problem's tables."""
    return pd.read_csv(FOLDER / f"{what}_{FOLDER.name}.tsv", sep="\t")


@cache
def model() -> fme.OdeModel:
    """Return the model at the nominal values, with its three observables."""
    nominal = table("parameters").set_index("parameterId")["nominalValue"]
    observables = table("observables").set_index("observableId")["observableFormula"]
    dimers = ["pApB", "pApA", "pBpB", "nucpApA", "nucpApB", "nucpBpB"]
    start = {"STAT5A": "207.6 * ratio", "STAT5B": "207.6 - 207.6 * ratio", **dict.fromkeys(dimers, 0.0)}
    return fme.OdeModel(
        EQUATIONS,
        state=start,
        times=sorted(table("measurementData")["time"].unique()),
        parms={k: v for k, v in nominal.items() if not k.startswith("sd_")},
        outputs=observables.to_dict(),
        rtol=1e-8,
        atol=1e-8,
    )


@cache
def cost() -> fme.SimulationCost:
    """Return the cost with the sds of the observables as parameters."""
    data, parameters = table("measurementData"), table("parameters").set_index("parameterId")
    noise = data.groupby("observableId")["noiseParameters"].first().to_dict()
    return fme.SimulationCost(
        model(),
        data[["observableId", "time", "measurement"]],
        y="measurement",
        measurement_noise=noise,
        parms={sd: parameters["nominalValue"][sd] for sd in noise.values()},
    )


def estimated() -> list[str]:
    """Return the nine parameters that are estimated, all on the log10 scale."""
    parameters = table("parameters")
    return parameters.loc[parameters["estimate"] == 1, "parameterId"].tolist()
