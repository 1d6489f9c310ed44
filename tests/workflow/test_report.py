"""The report: sections in order, true sentences, everything escaped, the same bytes; and what a browser makes of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import fmepy as fme
from fmepy.workflow.report.findings import Findings, agreement_facts, agreement_of, runs_of_signs
from fmepy.workflow.report.page import make_section, render
from fmepy.workflow.report.pictures import first_few
from fmepy.workflow.report.tables import MOST_ROWS, TableCell, correlations, table_of
from fmepy.workflow.report.words import environment, number
from fmepy.workflow.steps.registry import STEPS as STEPS_OF
from tests.workflow import browser

T = np.arange(12.0)
N = 10 * 0.8**T * np.exp(0.05 * np.cos(5 * T))
STEPS = """
screen = {}
fit = {}
multistart = { starts = 3 }
profile = { num = 5 }
sample = { niter = 300, burninlength = 100, chains = 2, wvar0 = 1, updatecov = 50 }
ranges = { num = 20, with_error = true }
scenarios = { table = "what_if.csv", num = 10 }
"""
MODEL = '''
[model]
equations = """
    next(N) = q * N - c
    N(0) = A
"""
times = { start = 0, stop = 11, step = 1 }
[parameters]
q = { start = 0.7, lower = 0.1, upper = 0.99 }
A = { start = 8, lower = 1, upper = 50, scale = "log", unit = "g" }
c = 0.0
'''
HEAD = """
title = "Decay"
description = "What is left."
data = { file = "decay.csv", x = "day" }
cost = { transform = "log" }"""
WHOLE = HEAD + STEPS + MODEL
EVIL = "<script>alert(\"1\")</script> & $x^2$ 'q' </title>"
HOSTILE = f"""
title = '''{EVIL}'''
description = '''{EVIL} <img src=x onerror=alert(1)>'''
data = {{ file = "decay.csv", x = "day", entity = "who" }}
fit = {{}}
scenarios = {{ table = "what_if.csv", num = 3 }}
[model]
equations = "next(N) = q * N"
state = {{ N = 10 }}
times = {{ start = 0, stop = 11, step = 1 }}
[parameters.q]
start = 0.7
description = '''{EVIL}'''
unit = '''{EVIL}'''
"""
ORDER = [
    "glance",
    "warnings",
    "task",
    "data",
    "screen",
    "fit",
    "multistart",
    "profile",
    "sample",
    "ranges",
    "scenarios",
    "reproduce",
]


class Page(HTMLParser):
    """What a page holds: elements with their attributes, ids, and the text of each section."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open, self.balanced = [], {}, [], True
        self.feed(text)
        self.balanced = self.balanced and not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append((tag, dict(attrs).get("id") if tag == "section" else None))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop()[0] != tag:
            self.balanced = False

    def handle_data(self, data):
        for tag, name in self._open:
            if tag == "section":
                self.texts[name] = self.texts.get(name, "") + data

    def all(self, tag):
        return [attrs for t, attrs in self.tags if t == tag]


def heads_of(text, caption):
    """Return the heads of the first table whose caption begins so."""
    table = text.partition(f"<caption>{caption}")[2].partition("</thead>")[0]
    return re.findall(r"<th [^>]*>([^<]*)", table)


def made(folder, text, data=None, what_if="scenario,q\nas it is,\nless,0.7\n"):
    """Return what the report of a file is written from."""
    table = pd.DataFrame({"day": T, "N": N}) if data is None else data
    table.to_csv(folder / "decay.csv", index=False)
    (folder / "what_if.csv").write_text(what_if, encoding="utf-8")
    (folder / "decay.toml").write_text(text, encoding="utf-8")
    given = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmepy.workflow.report.page.render", lambda *inputs: given.append(inputs) or "")
        fme.workflow.calibrate(folder / "decay.toml")
    return given[0]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return made(tmp_path_factory.mktemp("whole"), WHOLE)


@pytest.fixture(scope="module")
def text(inputs):
    return render(*inputs)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    parts = [pd.DataFrame({"who": who, "day": T[:6], "N": N[:6]}) for who in (EVIL, "<b>two</b>")]
    what_if = f'scenario,q\n"{EVIL.replace(chr(34), chr(34) * 2)}",\n<i>less</i>,0.5\n'
    return made(tmp_path_factory.mktemp("hostile"), HOSTILE, pd.concat(parts), what_if)


def with_fit(inputs, **changes):
    """Return the inputs with another fit, and no other."""
    task, results, record, warnings, tables = inputs
    changed = {"fit": replace(results["fit"], **changes)}
    return task, changed, record, warnings, tables


def test_the_sections_stand_in_their_order(page):
    assert [a["id"] for a in page.all("section")] == ORDER
    assert page.balanced


def test_nothing_failed_on_the_way(text):
    assert "could not be" not in text


def test_ids_are_there_once_and_links_lead_to_them(page):
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = {a["href"] for _, a in page.tags if "href" in a}
    assert links
    assert not {link for link in links if link.removeprefix("#") not in ids}


def test_nothing_is_asked_of_a_network_and_nothing_runs_but_the_script_of_the_page(page, text):
    assert len(page.all("script")) == 1
    assert not [a for t, a in page.tags if ("src" in a and t != "img") or any(k.startswith("on") for k in a)]
    assert all(a["src"].startswith("data:image/svg+xml,") for a in page.all("img"))
    assert not re.search(r"(?:url\(|@import|href=.)\s*[\"']?(?:https?:)?//", text)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_the_same_results_give_the_same_bytes_whatever_the_settings_and_from_files(inputs, text, tmp_path):
    task, results, *rest = inputs
    loaded = {name: fme.load(result.save(tmp_path / name)) for name, result in results.items()}
    with matplotlib.rc_context({"lines.linewidth": 7.0, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert render(task, loaded, *rest) == text


def test_dates_and_durations_stand_in_the_head_and_in_reproduce_only(inputs):
    task, _, record, *rest = inputs
    results: dict[str, object] = {}
    text = render(task, results, record, *rest)
    later = dict(
        record, started="2031-07-08T09:10:11+00:00", ended="2031-07-08T09:10:12+00:00", seconds=987.0, workers=77
    )
    other = render(task, results, later, *rest)
    cut = [re.sub(r'<p class="kicker">[^<]*</p>', "", t).split('<section id="reproduce"')[0] for t in (text, other)]
    assert cut[0] == cut[1]
    assert "2031-07-08 09:10:11 UTC" in other


def svgs(text):
    """Return the pictures of a page, as trees."""
    sources = [html.unescape(a["src"]) for a in Page(text).all("img")]
    assert all(source.startswith("data:image/svg+xml,") for source in sources)
    return [ElementTree.fromstring(unquote(source.partition(",")[2])) for source in sources]


def test_every_picture_has_a_text_and_stands_on_white(page, text):
    assert len(svgs(text)) > 12
    assert all(a["alt"] for a in page.all("img"))
    for svg in svgs(text):
        assert "fill: #ffffff" in "".join(e.attrib.get("style", "") for e in svg.iter())


def test_lengths_are_rounded_and_labels_are_not(text):
    drawn = [e.attrib["d"] for svg in svgs(text) for e in svg.iter() if "d" in e.attrib]
    assert not re.search(r"\d\.\d{3}", " ".join(drawn))
    labels = [e.text or "" for svg in svgs(text) for e in svg.iter() if e.tag.endswith("}text")]
    assert {"q", "A, g", "day"} <= set(labels)


def test_heads_of_tables_are_words(text):
    assert heads_of(text, "Plausible values")[-2:] == ["effective draws", "effective draws, tails"]
    assert heads_of(text, "Bands: mean, sd") == [
        "day", "variable", "mean", "sd", "smallest", "largest", "5 %", "25 %", "median", "75 %", "95 %", "runs"
    ]  # fmt: skip


def test_experiments_are_called_as_in_the_data(hostile):
    assert heads_of(render(*hostile), "The readings that are compared")[2] == "whos"


def test_a_sample_with_few_draws_in_its_tails_is_not_called_good(inputs):
    chain = inputs[1]["sample"]
    said = STEPS_OF["sample"].verdict(None, chain)
    assert f"({chain.diagnostics()['ess_tail'].min():.4g} in the tails)" in said
    assert said.endswith("do not rely on them yet.") == bool(chain.summary().advice)


def test_estimates_are_told_with_their_errors(inputs, page):
    estimates = inputs[4]["estimates.csv"].set_index("parameter")
    told = page.texts["fit"]
    for name in ("q", "A"):
        assert number(estimates["estimate"][name]) in told
        assert number(estimates["se"][name]) in told
    assert "The search converged" in told


def test_numbers_are_of_the_natural_scale(inputs, page):
    fit = inputs[1]["fit"]
    assert np.isclose(fit.par["A"], np.log(10), rtol=0.1)  # it is fitted as a logarithm
    assert "Well determined: q and A" in page.texts["profile"]
    for section in ("profile", "sample", "multistart"):
        assert re.search(r"(?:9|10)\.\d", page.texts[section])


def test_a_fit_that_did_not_converge_is_the_first_thing_told(inputs):
    page = Page(render(*with_fit(inputs, converged=False, message="It went nowhere.")))
    assert "did NOT converge" in page.texts["warnings"]
    assert "did NOT converge" in page.texts["fit"]
    assert "It went nowhere." in page.texts["fit"]


def test_a_parameter_on_a_bound_is_told_first(inputs):
    task, results, record, _, tables = with_fit(inputs, at_bound=("q",), message="It stopped. On a bound: q.")
    page = Page(render(task, results, record, ["fit: It stopped. On a bound: q."], tables))
    assert "q lies on a bound" in page.texts["warnings"]
    assert "It stopped." not in page.texts["warnings"]  # the same once more
    assert "It stopped." in page.texts["fit"]


@pytest.mark.parametrize(("ssr", "is_told"), [(10.0, False), (0.1, True), (1000.0, True)])
def test_residuals_that_are_no_errors_beside_a_prior_are_told_first(inputs, ssr, is_told):
    page = Page(render(*with_fit(inputs, with_prior=True, ssr=ssr)))  # of ten degrees of freedom
    assert ("Beside a prior, residuals count in units of the errors" in page.texts["warnings"]) == is_told


def test_a_reading_far_off_is_told_with_its_place(tmp_path):
    n = N.copy()
    n[7] *= 3
    simple = WHOLE.replace(STEPS, "\nfit = {}\n")
    page = Page(render(*made(tmp_path, simple, pd.DataFrame({"day": T, "N": n}))))
    assert "1 reading of 12 lies more than three standard deviations from the model" in page.texts["warnings"]
    assert "Suspicious readings" in page.texts["fit"]


def findings(residuals, x="day", unit=""):
    """Return what a report finds of a fit of one parameter with these residuals."""
    cost = SimpleNamespace(residuals=residuals, is_likelihood=False)
    fit = SimpleNamespace(cost=cost, names=("a",), data=None, minimised=1.0, is_scalar=True, converged=True)
    task = SimpleNamespace(cost=SimpleNamespace(err=None, x=x), model=None, data=pd.DataFrame(), x_unit=unit)
    return Findings(task, {"fit": fit}, {}, {})


def agreement(above):
    """Return what the report makes of readings that lie so far above the model, one parameter being fitted."""
    n = len(above)
    table = pd.DataFrame({"name": "y", "x": np.arange(n), "obs": 5 + above, "mod": 5.0, "res": -above})
    found = findings(table)
    made = agreement_of(found)
    make_section("fit", "", "agreement.html", found, {"agreement": agreement_facts(found, made)})
    note = environment().get_template("blocks.html").module.note
    notes = [html.unescape(note(v)) for v in agreement_facts(found, made)["variables"] if v["is_noted"]]
    return made, [sentence for _, sentence in found.doubts], notes


def test_deviations_are_in_units_of_the_spread_of_the_others():
    above = np.array([0.1, -0.2, 0.05, 1.5, -0.1])
    made, doubts, _ = agreement(above)
    others = (above @ above - above**2) / (5 - 1 - 1)  # variance of the others: one parameter, and itself
    np.testing.assert_allclose(made.rows["z"], above / np.sqrt(others))
    assert made.suspicious.index.tolist() == [3]
    assert "1 reading of 5 lies more than three standard deviations from the model" in " ".join(doubts)


@pytest.mark.parametrize(("farthest", "is_told"), [(3.3, False), (6.0, True)])
def test_readings_as_far_off_as_chance_has_them_are_no_doubt(farthest, is_told):
    above = norm.ppf((np.arange(700) + 0.5) / 700)
    above[0] = -farthest
    made, doubts, _ = agreement(above)
    assert len(made.suspicious) >= 1
    assert ("three standard deviations" in " ".join(doubts)) == is_told


@pytest.mark.parametrize(
    ("column", "unit", "said"),
    [("day", "days", "day"), ("day", "h", "day, h"), ("time", "m", "time, m"), ("time (h)", "h", "time (h)")],
)
def test_the_axis_does_not_say_the_unit_twice(column, unit, said):
    assert findings(None, column, unit).x_label == said


def test_readings_beyond_a_limit_have_no_deviation():
    above = np.array([0.1, -0.2, 0.05, 0.3, -0.1])
    known = agreement(above)[0]
    table = pd.DataFrame({"name": "y", "x": np.arange(7), "obs": 5 + np.r_[above, 1, 1], "mod": 5.0})
    table = table.assign(res=-np.r_[above, 9, 9], censored=[""] * 5 + ["<"] * 2)
    made = agreement_of(findings(table))
    assert made.n_beyond == 2
    pd.testing.assert_frame_equal(made.rows, known.rows)


def test_deviations_that_follow_each_other_are_alike_and_those_that_alternate_are_not():
    x = np.arange(24)
    pattern = "neighbouring deviations are correlated"
    assert pattern in " ".join(agreement(np.sin(2 * np.pi * x / 12))[1])
    assert pattern not in " ".join(agreement((-1.0) ** x)[1])


def test_the_runs_of_signs_are_tested_and_a_last_run_is_noticed():
    rng = np.random.default_rng(3)
    for n in (5, 8):  # by counting all series of n signs
        every = [np.where([k >> i & 1 for i in range(n)], 1.0, -1.0) for k in range(2**n)]
        longest = np.array([runs_of_signs([z]).longest for z in every])
        for z in (every[0], every[5], every[21]):
            runs = runs_of_signs([z])
            assert runs.p_long == pytest.approx(np.mean(longest >= runs.longest))
            assert runs.count == 1 + np.count_nonzero(z[1:] != z[:-1])
    signs = rng.permutation(np.repeat([1.0, -1.0], [12, 18]))
    counts = [runs_of_signs([rng.permutation(signs)]).count for _ in range(4000)]
    runs = runs_of_signs([signs])
    assert runs.expected == pytest.approx(np.mean(counts), abs=0.15)
    assert runs.p_few == pytest.approx(np.mean(np.array(counts) <= runs.count), abs=0.03)
    above = np.array([0.3, -0.2, 0.1, -0.4, 0.2, 0.3, -0.1, 0.2, -0.3, 0.4, -0.2, -0.1, -0.3, -0.2])
    assert agreement(above)[2] == [
        "y: the last 4 of 14 residuals are all negative (10 runs of one sign where 7.9 are expected (runs test, p = "
        "0.93); a longest run of 4 or more has p = 0.62)."
    ]
    assert not agreement(above[:-1] * [*[1] * 12, -1])[2]
    assert "runs test, p < 0.001" in " ".join(agreement(np.repeat([0.1, -0.1], 15) + 1e-3 * signs)[2])


def test_correlations_near_one_are_none_of_one():
    held = pd.DataFrame([[1, 0.5, np.nan], [0.5, 1, np.nan], [np.nan] * 3], list("abc"), list("abc"))
    assert [head for head, _ in correlations(held, "t").columns] == ["parameter", "a", "b"]
    R = pd.DataFrame([[1, 0.99987], [0.99987, 1]], ["a", "b"], ["a", "b"])
    assert [cell.text for cell in correlations(R, "t").rows[0]] == ["a", "1", "0.9999"]
    assert number(0.99996) == "0.99996"


def test_warnings_and_missed_demands_stand_first(inputs):
    task, _results, record, _, tables = inputs
    demand = {"demand": "rhat", "wanted": 1.01, "found": 1.3, "met": False, "said": "the largest R-hat is 1.3"}
    page = Page(render(task, {}, dict(record, demands=[demand]), ["Demanded and missed: R-hat"], tables))
    assert "Demanded and missed: R-hat" in page.texts["warnings"]
    assert "1.3" in page.texts["warnings"]
    assert [a["id"] for a in page.all("section")] == ["glance", "warnings", "task", "data", "reproduce"]


def test_without_warnings_that_is_said(inputs):
    task, _results, record, _, tables = inputs
    page = Page(render(task, {}, dict(record, demands=[]), [], tables))
    assert "Nothing was fitted." in page.texts["glance"]
    assert "warnings" not in page.texts


def test_a_step_that_failed_has_a_section(inputs):
    task, results, record, warnings, tables = inputs
    steps = dict(
        record["steps"], sample={**record["steps"]["sample"], "state": "failed", "error": "The <model> broke."}
    )
    left = {k: v for k, v in results.items() if k == "fit"}
    page = Page(render(task, left, dict(record, steps=steps), warnings, tables))
    assert "The <model> broke." in page.texts["sample"]
    assert "sample" in page.texts["warnings"]


@pytest.mark.parametrize(
    ("reached", "missed", "optimum", "n_optima", "said"),
    [
        (2, 0.01, [1, 1, 1], 1, ""),
        (1, 0.01, [1, 2, 2], 2, "Only 1 of 3 searches reached the best value"),
        (2, 0.3, [1, 1, 2], 2, "3 searches ended in 2 different optima, and the chance that the next start finds"),
        (2, 0.5, [1, 1, 1], 1, ""),  # few starts that agree: the chance stands in the section
        (2, 0.01, [1, 0, 0], 1, "2 of 3 searches failed or did not converge"),
        (1, 0.01, [1, 0, 0], 1, "Only 1 of 3 searches reached the best value, and 2 of 3 failed or did not converge"),
        (2, 0.3, [1, 0, 0], 2, "is about 30 %, and 2 of 3 failed or did not converge"),
    ],
)
def test_what_many_starts_may_have_missed_is_a_warning(inputs, reached, missed, optimum, n_optima, said):
    task, results, record, _, tables = inputs
    fit = results["multistart"]
    many = fit.multistart
    optima = pd.concat([many.optima.head(1)] * n_optima, ignore_index=True)
    many = replace(many, reached=reached, missed=missed, optima=optima, starts=many.starts.assign(optimum=optimum))
    one = replace(fit, multistart=many)
    page = Page(render(task, {"multistart": one}, record, [], tables))
    told = page.texts.get("warnings", "")
    gone = optimum.count(0)
    assert (f", {gone} failed or did not converge;" in STEPS_OF["multistart"].verdict(task, one)) == bool(gone)
    assert (f"; {gone} failed or did not converge." in page.texts["multistart"]) == bool(gone)
    assert said in told
    assert ("may have been missed" in told) == bool(said)


def test_what_is_not_drawn_is_said_with_the_file_that_holds_it():
    assert first_few(["a", "b"], 2, "x.csv") == (["a", "b"], "")
    assert first_few(list("abc"), 2, "x.csv")[1] == "The first 2 of 3 are drawn; the numbers of all are in x.csv."


def test_a_section_that_breaks_leaves_the_others(inputs):
    task, results, *rest = inputs
    page = Page(render(task, {"profile": object(), "fit": results["fit"]}, *rest))
    assert "could not be written" in page.texts["profile"]
    assert "could not be written" in page.texts["warnings"]
    assert "The search converged" in page.texts["fit"]


def test_what_a_file_says_is_text_wherever_it_stands(hostile):
    text = render(*hostile)
    page = Page(text)
    assert page.balanced
    assert len(page.all("script")) == 1
    assert all(a["src"].startswith("data:image/svg+xml,%3Csvg") for a in page.all("img"))
    assert not page.all("b")
    assert not page.all("i")
    escaped = ("alert(&", "alert(1)&", 'alert("1")&lt;', "alert(%22")  # the last is in an image
    assert text.count("alert(") == sum(map(text.count, escaped))
    assert html.escape(EVIL, quote=False) in html.unescape(text).replace("&", "&amp;").replace("<", "&lt;").replace(
        ">", "&gt;"
    )
    assert page.texts["task"].count(EVIL) >= 2


def test_formulas_and_signs_that_are_no_text_do_not_reach_a_picture(inputs):
    task, results, *rest = inputs
    units = {"q": "$\\frac{$ \x00\x08", "A": "$x^2$"}
    parameters = {n: replace(p, unit=units.get(n, p.unit)) for n, p in task.case.parameters.items()}
    odd = replace(task, case=replace(task.case, parameters=parameters))
    text = render(odd, {name: results[name] for name in ("fit", "profile")}, *rest)
    assert "could not be" not in text
    assert "\x00" not in text
    assert any("$x^2$" in (e.text or "") for svg in svgs(text) for e in svg.iter())


def test_the_file_stands_in_the_report(page):
    assert "next(N) = q * N - c" in page.texts["reproduce"]
    assert "next(N) = q * N - c" in page.texts["task"]


def test_a_filter_is_told_with_its_own_flags(tmp_path):
    flow = np.array(
        [1120.0, 1160, 963, 1210, 1160, 1160, 813, 1230, 3370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799]
    )
    pd.DataFrame({"year": np.arange(1871, 1871 + len(flow)), "flow": flow}).to_csv(tmp_path / "decay.csv", index=False)
    toml = """
        data = { file = "decay.csv", x = "year" }
        filter = { steps = 3, max_lag = 4 }
        fit = {}
        [cost]
        kind = "fimlof"
        process_noise = { level = "sd_w" }
        measurement_noise = { flow = "sd_v" }
        initial = "diffuse"
        [model]
        equations = "next(level) = level"
        state = { level = 1000 }
        outputs = { flow = "level" }
        times = { start = 1871, stop = 1888, step = 1 }
        [parameters]
        sd_w = 20.0
        sd_v = { start = 100, lower = 10 , upper = 200 }
    """
    task, results, record, warnings, tables = made(tmp_path, toml, pd.read_csv(tmp_path / "decay.csv"))
    text = render(task, results, record, warnings, tables)
    page = Page(text)
    assert "could not be" not in text
    assert "flow at year 1879" in page.texts["filter"]
    assert "Forecast" in page.texts["filter"]
    assert "suspected" in page.texts["warnings"]
    assert sorted(set(tables["correlations.csv"]["lag"])) == [0, 1, 2, 3, 4]
    assert "Correlations of the innovations over 4 lags." in page.texts["filter"]
    assert heads_of(text, "Forecast") == [
        "year", "variable", "mean", "sd", "lower", "upper",
        "sd of a reading", "lower, of a reading", "upper, of a reading",
    ]  # fmt: skip


def test_long_tables_are_cut_and_that_is_told():
    table = table_of(pd.DataFrame({"x": np.arange(1e5)}), "Many", file="many.csv")
    assert len(table.rows) == MOST_ROWS
    assert table.note == f"The table shows the first {MOST_ROWS} of 100,000 rows; many.csv has all of it."
    wide = table_of(pd.DataFrame(np.zeros((2, 500))), "Wide")
    assert len(wide.columns) == len(wide.rows[0]) == 24
    assert "of 500 columns" in wide.note


def test_numbers_have_the_digits_that_tell_them_apart():
    same = table_of(pd.DataFrame({"x": [17.6776695, 17.6776696, 160.0]}), "t")  # but for rounding
    assert [row[0].text for row in same.rows] == ["17.68", "17.68", "160"]
    table = table_of(
        pd.DataFrame({"x": [1900.1, 1900.2], "y": [np.nan, np.inf], "z": [True, None], "w": ["a", 1.5]}), "t"
    )
    assert [row[0].text for row in table.rows] == ["1900.1", "1900.2"]
    assert [row[1] for row in table.rows] == [TableCell("–"), TableCell("∞", "Infinity")]
    assert [row[2].text for row in table.rows] == ["yes", "–"]
    assert [is_number for _, is_number in table.columns] == [True, True, False, False]


def test_curves_that_the_first_screen_has_no_room_for_stand_with_the_data(tmp_path):
    data = pd.concat([pd.DataFrame({"day": T, "N": N, "who": f"n{k}"}) for k in range(5)])
    text = render(*made(tmp_path, HEAD.replace('"day" }', '"day", entity = "who" }') + "\nfit = {}\n" + MODEL, data))
    assert "could not be" not in text
    assert text.count("who n4: readings as points") == 1
    assert text.count("%3EN%3C/text") == 4 + 5 + 1  # the first panels, all of them, the deviations say what they show
    assert "%3En4%3C/text" in text  # colours of deviations have a legend


@pytest.mark.slow
def test_huge_data_make_no_huge_report(tmp_path):
    n = 4000
    day = np.sort(np.random.default_rng(1).uniform(0, 11, n))
    data = pd.DataFrame({"day": day, "N": 10 * np.exp(-0.2 * day)})
    simple = WHOLE.replace(STEPS, "\nfit = {}\n").replace("next(N) = q * N - c", "d(N)/dt = -q * N - c")
    text = render(*made(tmp_path, simple, data))
    assert len(text) < 700_000
    assert "of very many points is drawn" in text
    assert "of 4,000 rows" in text


# ------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def chromium():
    path = browser.found()
    if path is None:
        pytest.skip("no Chromium is installed: the report is not tried in a browser")
    one = browser.Browser(path)
    yield one
    one.close()


@pytest.fixture(scope="module")
def shown(chromium, text, tmp_path_factory):
    """Return a browser that shows the report, and the file."""
    path = tmp_path_factory.mktemp("shown") / "report.html"
    path.write_text(text, encoding="utf-8")
    chromium.open(path)
    return chromium, path


def column(chromium, place):
    return chromium.of(
        f"[...[...document.querySelectorAll('#task table')].at(-1).tBodies[0].rows].map(r => "
        f"r.cells[{place}].textContent)"
    )


def test_a_browser_loads_it_from_disk_without_requests_and_complaints(shown):
    chromium, path = shown
    assert chromium.requests() == [path.as_uri()]
    assert chromium.complaints() == []
    assert chromium.of("[...document.querySelectorAll('main > section')].map(s => s.id)") == ORDER


def test_a_click_sorts_by_number_and_the_second_the_other_way(shown):
    chromium, path = shown
    chromium.open(path)
    heads = chromium.of(
        "[...[...document.querySelectorAll('#task table')].at(-1).tHead.rows[0].cells].map(c => c.textContent)"
    )
    at = heads.index("start or value")
    head = f"#task .scroll:last-of-type th:nth-child({at + 1})"
    assert column(chromium, at) == ["0.7", "8", "0"]
    chromium.click(head)
    assert column(chromium, at) == ["0", "0.7", "8"]
    chromium.click(head)
    assert column(chromium, at) == ["8", "0.7", "0"]
    bound = heads.index("lower bound")
    head = f"#task .scroll:last-of-type th:nth-child({bound + 1})"
    for expected in (["0.1", "1", "–"], ["1", "0.1", "–"]):  # what is empty stays at the end
        chromium.click(head)
        assert column(chromium, bound) == expected


def test_keys_sort_too(shown):
    chromium, path = shown
    chromium.open(path)
    chromium.of("[...document.querySelectorAll('#task table')].at(-1).querySelector('th button').focus()")
    chromium.press("Enter", 13)
    assert column(chromium, 0) == ["A", "c", "q"]
    assert (
        chromium.of("[...document.querySelectorAll('#task table')].at(-1).querySelector('th').ariaSort") == "ascending"
    )


def test_verdict_curve_and_estimates_stand_on_the_first_screen(shown, inputs):
    chromium, path = shown
    browser.check_first_screens(chromium, path)
    chromium.open(path)
    words = chromium.of("document.querySelector('#glance').innerText")
    assert "The model explains" in words
    for name, value in inputs[4]["estimates.csv"][["parameter", "estimate"]].to_numpy():
        assert re.search(rf"{name}\s+{re.escape(number(value))}\s+[\d.]+ to [\d.]+", words)
    column, picture = chromium.of("['.first > div', '.first img'].map(s => document.querySelector(s).clientWidth)")
    assert picture == column


def test_pictures_fill_their_column(shown):
    chromium, path = shown
    chromium.open(path)
    chromium.of("document.querySelectorAll('details').forEach(d => d.open = true)")
    gaps = chromium.of("[...document.querySelectorAll('figure')].map(f => f.clientWidth - f.children[0].clientWidth)")
    assert len(gaps) > 12
    assert set(gaps) == {0}


def test_tables_in_print_keep_their_heads(shown):
    chromium, path = shown
    chromium.open(path)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    tables = chromium.of("""[...document.querySelectorAll('table')].filter(t => t.checkVisibility()).map(t => [
      t.tHead && getComputedStyle(t.tHead).display, getComputedStyle(t.rows[0]).breakInside,
      getComputedStyle(t.parentElement).overflowX])""")
    assert len(tables) > 5
    assert {tuple(t) for t in tables} == {("table-header-group", "avoid", "visible")}  # what scrolls is cut on paper
    buttons = chromium.of("[...document.querySelectorAll('th button')].map(b => getComputedStyle(b).display)")
    assert set(buttons) == {"contents"}  # Chromium repeats no head that holds the box of a button


@pytest.mark.parametrize("dark", [False, True])
def test_letters_have_contrast(shown, dark):
    """At least 4.5 to 1, as the accessibility guidelines (WCAG AA) ask."""
    chromium, path = shown
    chromium.open(path, dark=dark)
    found = chromium.of("""(() => {
      const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(
        v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
      const texts = [...document.querySelectorAll('body *')].filter(
        e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
      return texts.map(e => { const [a, b] = [light(getComputedStyle(e).color), light(paper(e))].sort((x, y) => x - y);
        return [(b + 0.05) / (a + 0.05), e.tagName + ' ' + e.textContent.slice(0, 40)]; }).sort((x, y) => x[0] - y[0]);
    })()""")
    assert len(found) > 100
    assert found[0][0] >= 4.5, found[0]


@pytest.mark.parametrize("dark", [False, True])
def test_no_page_is_wider_than_a_narrow_screen(shown, dark):
    chromium, path = shown
    chromium.open(path, width=400, dark=dark)
    chromium.of("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert chromium.of("document.documentElement.scrollWidth") <= 400
    paper = chromium.of("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != dark


@pytest.mark.slow
def test_a_hostile_file_runs_nothing_in_a_browser(chromium, hostile, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(*hostile), encoding="utf-8")
    chromium.open(path, width=400)
    assert chromium.of("document.title") == EVIL
    assert chromium.complaints() == []
    assert chromium.requests() == [path.as_uri()]
    assert chromium.of("document.scripts.length") == 1
    assert chromium.of("document.documentElement.scrollWidth") <= 400
