"""Public models of Vensim and Stella give the numbers of the vendors' programs, or PySD's; see reference/vensim."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from fmepy.dmi import read_vensim
from fmepy.exchange.expressions import key_of

FOLDER = Path(__file__).parents[1] / "reference/vensim"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
CONTROLS = ("final_time", "initial_time", "time_step", "saveper", "time")


def key(name: str) -> str:
    head, _, inside = name.removesuffix("]").partition("[") if not name.startswith('"') else (name, "", "")
    return ",".join(map(key_of, [head, *inside.split(",")]))


@pytest.mark.parametrize("file", EXPECTED)
def test_a_public_model_gives_its_published_numbers(file: str):
    said = EXPECTED[file]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = read_vensim(FOLDER / file)
        out = model()
    ours = {key(there): here for there, here in model.renamed.items()}
    values = {**out, **model.data.numbers, **model.parms}
    rows = [int(np.argmin(np.abs(out["time"].to_numpy() - t))) for t in said["time"]]
    assert out["time"].to_numpy()[rows] == pytest.approx(said["time"])
    for name in {**said["published"], **said["pysd"]}:
        if key(name).rstrip(",") in CONTROLS:
            continue
        y = np.broadcast_to(values[ours[key(name)]], len(out))[rows]
        columns = [said[who][name] for who in ("published", "pysd") if name in said[who]]
        columns = [np.array(c if isinstance(c, list) else [c] * len(rows), dtype=float) for c in columns]
        sizes = [2e-5 * np.nanmax(np.abs(c), initial=1e-6) for c in columns]
        right = [np.all(np.isnan(c) | (np.abs(y - c) <= size)) for c, size in zip(columns, sizes, strict=True)]
        assert any(right), f"{name}: {y[:3]}, and not {columns[0][:3]}"
