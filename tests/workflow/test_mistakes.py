# ruff: noqa: E501
"""Every mistake in a calibration file is told with its line, names the nearest word, and ends with 2: a table of them."""

from __future__ import annotations

import pytest

from fmepy.workflow.command import main

CASE = """\
title = "hare and lynx"
[data]
file = "lynx.csv"
x = "year"
[cost]
kind = "simulation"
transform = "log"
[model]
times = { start = 1900, stop = 1920, step = 0.5 }
equations = \"\"\"
    d(Hare)/dt = r * Hare - a * Hare * Lynx
    d(Lynx)/dt = e * Hare * Lynx - m * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
\"\"\"
[parameters]
r = { start = 0.55, lower = 0.01, upper = 2 }
a = { start = 0.028, lower = 0.001, upper = 0.2 }
e = { start = 0.024, lower = 0.001, upper = 0.2, scale = "log" }
m = { start = 0.8, lower = 0.01, upper = 3, prior = { dist = "norm", loc = 0.8, scale = 0.1 } }
Hare0 = 34.0
Lynx0 = 6
[screen]
collin = true
[fit]
[profile]
which = ["r"]
[sample]
niter = 200
burninlength = 50
[ranges]
num = 5
[require]
rhat = 1.1
[run]
seed = 1
"""
DATA = "year,Hare,Lynx\n1900,30,4\n1901,47.2,6.1\n1902,70.2,9.8\n1903,77.4,35.2\n1904,36.3,59.4\n1905,20.6,41.7\n"
MISTAKES = [
    # the file itself
    ("title = ", "title == ", "case.toml:1: this is no TOML"),
    ('title = "hare and lynx"', "title = 3", "case.toml:1: `title` must be a text in quotes; got 3"),
    ("[cost]", "[costs]", "case.toml:5: unknown key 'costs'; did you mean 'cost'?"),
    ("[fit]", "[Fit]", "case.toml:25: unknown key 'Fit'; did you mean 'fit'?"),
    ("[fit]", "fit = 3\n[x]", "unknown key 'x'; there are"),
    ("[run]\nseed = 1", "[run]\nseed = 1\n[[run]]", "this is no TOML"),
    ("[model]\n", "[modell]\n", "unknown key 'modell'; did you mean 'model'?"),
    # data
    ('file = "lynx.csv"', 'file = "linx.csv"', "case.toml:3: there is no file"),
    ('file = "lynx.csv"', 'file = "linx.csv"', "Did you mean 'lynx.csv'?"),
    ('file = "lynx.csv"\n', "", "case.toml:2: the key `file` is missing in data"),
    ('file = "lynx.csv"', "file = [1]", "case.toml:3: `file` must be a text in quotes; got [1]"),
    ('file = "lynx.csv"', 'file = "."', "it is a folder"),
    ('file = "lynx.csv"', 'file = "lynx.csv\\u0000"', "cannot be read"),
    ('x = "year"', 'x = "yeer"', "case.toml:4: there is no column 'yeer' in lynx.csv. Did you mean 'year'?"),
    ('x = "year"\n', "", "case.toml:2: there is no column 'time' in lynx.csv; name that of the times by `x`"),
    ('x = "year"', 'x = "year"\nentity = "animal"', "case.toml:5: there is no column 'animal'"),
    ('x = "year"', 'x = "year"\ny = "value"', "case.toml:5: there is no column 'value'"),
    ('x = "year"', 'x = "year"\nerr = "ssd"', "case.toml:5: there is no column 'ssd'"),
    ('x = "year"', 'x = "year"\ncensored = "mark"', "case.toml:5: there is no column 'mark'"),
    ('x = "year"', 'x = "year"\nencodng = "utf-8"', "case.toml:5: unknown key 'encodng' in data; did you mean 'encoding'?"),
    ('x = "year"', 'x = "year"\nencoding = "utf-88"', "`encoding` = 'utf-88' is not known. Did you mean 'utf-8'?"),
    ('x = "year"', 'x = "year"\nseparator = ",,"', "case.toml:5: `separator` must be one character"),
    ('x = "year"', 'x = "year"\ndecimal = "x"', "case.toml:5: `decimal='x'` is not known. Choose one of '.', ','"),
    # cost
    ('"simulation"', '"simulated"', "case.toml:6: `kind='simulated'` is not known. Choose one of 'simulation'"),
    ('"log"\n[model]', '"lg"\n[model]', "case.toml:7: `transform='lg'` is not known. Choose one of 'log', 'log10', 'sqrt'. Did you mean"),
    ('transform = "log"', "gain = 1", "case.toml:7: `gain` cannot be used with a cost of the kind 'simulation'; it belongs to 'prediction_error'"),
    ('"simulation"', '"fimlof"', "case.toml:5: the key `process_noise` is missing in cost"),
    ('transform = "log"', 'likelihood = "laplac"', "case.toml:7: `likelihood"),
    ('transform = "log"', 'weight = "sd"', "case.toml:7: `weight='sd'` is not known"),
    ('transform = "log"', "scaleVar = 1", "case.toml:7: `scaleVar` must be true or false; got 1"),
    ('transform = "log"', 'measurement_noise = { Hair = "sd" }', "case.toml:7: `measurement_noise`: 'Hair' is not an observed variable. Did you mean 'Hare'?"),
    ('transform = "log"', 'measurement_noise = { Hare = "sd", Lynx = 1 }', "case.toml:7: `measurement_noise['Hare']` uses 'sd', which has no value. Give it in [parameters]"),
    ('transform = "log"', 'entity_parms = ["r"]', "case.toml:7: `entity_parms` needs `entity`"),
    # model
    ("times = { start = 1900, stop = 1920, step = 0.5 }\n", "", "case.toml:8: the key `times` is missing in model"),
    ("stop = 1920", "stop = 1890", "case.toml:9: `times` must go from start up to stop"),
    ("stop = 1920", "stop = 1902", "lie outside the model's range"),
    ("step = 0.5", "stepp = 0.5", "case.toml:9: unknown key 'stepp' in model.times; did you mean 'step'?"),
    ("step = 0.5", "step = 0.3", "case.toml:9: `stop` must lie a whole number of steps after `start`"),
    ("{ start = 1900, stop = 1920, step = 0.5 }", "[1900, 'x']", "case.toml:9: `times` must hold a number; got 'x'"),
    ("{ start = 1900, stop = 1920, step = 0.5 }", "[1920, 1900]", "case.toml:9: `times` must increase"),
    ("equations = \"\"\"", "equation = \"\"\"", "case.toml:10: unknown key 'equation' in model; did you mean 'equations'?"),
    ("a * Hare * Lynx", "a * + Hare * * Lynx", "case.toml:11: this cannot be read"),
    ("e * Hare * Lynx", "ee * Hare * Lynx", "case.toml:12: "),
    ("d(Lynx)/dt", "d(Lynx/dt", "case.toml:12: "),
    ("Hare(1900) = Hare0", "Here(1900) = Hare0", "case.toml:13: Here(0) is an initial value"),
    ("    Lynx(1900) = Lynx0\n", "", "No initial value for 'Lynx'"),
    ("d(Lynx)/dt = e *", "d(Lynx)/dt = ee *", "case.toml:12: 'ee' has no value: it is not a state, and is missing in [parameters] and `forcings`. Did you mean 'e'?"),
    ("m = {", "mm = {", "case.toml:12: 'm' has no value: it is not a state, and is missing in [parameters] and `forcings`. Did you mean 'mm'?"),
    ("Lynx0 = 6", "Lynx0 = 6\nM = 3", "case.toml:23: 'M' is used nowhere, neither in the model nor in the cost. Did you mean 'm'?"),
    ("Lynx0 = 6", "Lynx0 = 6\n\nr = 3", "case.toml:24: this is no TOML: the key 'r' in parameters stands here for the second time, the first is in line 17"),
    ("- m * Lynx", "- m * Lynx * __import__('os').getpid()", "case.toml:12: "),
    ("[model]\n", '[model]\nkind = "odee"\n', "case.toml:9: `kind='odee'` is not known"),
    ("[model]\n", '[model]\nengine = "disol"\n', "case.toml:9: `engine='disol'` is not known"),
    ("[model]\n", '[model]\nmethod = "bfd"\n', "case.toml:9: "),
    ("[model]\n", "[model]\nrtol = -1\n", "case.toml:9: `rtol` must be at least 0; got -1"),
    ("[model]\n", "[model]\npositive = true\n", "case.toml:9: `positive` cannot be used with a model of equations (kind 'ode'); it belongs to 'steady'"),
    ("[model]\n", '[model]\npython = "a.py:f"\n', "case.toml:9: the section [model] holds 'equations', 'python'; it is made of one"),
    ("[model]\n", '[model]\noutputs = { sum = "Hare + Linx" }\n', "'Linx'"),
    # parameters
    ("start = 0.55", "strat = 0.55", "case.toml:17: unknown key 'strat' in parameters.r; did you mean 'start'?"),
    ("start = 0.55, ", "", "case.toml:17: the key `start` is missing in parameters.r"),
    ("start = 0.55", "start = '0.55'", "case.toml:17: `start` must be a number; got '0.55'"),
    ("start = 0.55", "start = nan", "case.toml:17: `start` of 'r' is nan; a finite number is needed"),
    ("start = 0.55", "start = 5", "case.toml:17: `start` of 'r' is 5, outside its bounds 0.01 to 2"),
    ("lower = 0.01, upper = 2 ", "lower = 2, upper = 0.01 ", "case.toml:17: `lower` of 'r' is 2, `upper` 0.01: it must be below"),
    ("lower = 0.01, upper = 2 ", "lower = nan ", "case.toml:17: `lower` of 'r' is nan; leave it out"),
    ('scale = "log"', 'scale = "lg"', "case.toml:19: `scale='lg'` is not known. Choose one of 'log', 'logit'. Did you mean 'log'?"),
    ('lower = 0.001, upper = 0.2, scale = "log"', 'lower = -1, scale = "log"', "case.toml:19: `lower` of 'e' is -1; on the scale 'log' values are above 0"),
    ('0.024, lower = 0.001, upper = 0.2, scale = "log"', '2, scale = "logit"', "case.toml:19: `start` of 'e' is 2; on the scale 'logit' it must be between 0 and 1"),
    ("Hare0 = 34.0", "Hare0 = true", "case.toml:21: `Hare0` must be a number or a table; got True"),
    ("Hare0 = 34.0", "Hare0 = inf", "case.toml:21: 'Hare0' is inf; a finite number is needed"),
    ("Hare0 = 34.0", "Hair0 = 34.0", "'Hare0'"),
    ("Lynx0 = 6", "Lynx0 = 6\nq = 1", "case.toml:23: 'q' is used nowhere, neither in the model nor in the cost"),
    ("Lynx0 = 6", "Lynx0 = 6\nLynx00 = { start = 1 }", "case.toml:23: 'Lynx00' is used nowhere, neither in the model nor in the cost. Did you mean 'Lynx0'?"),
    ("Lynx0 = 6", 'Lynx0 = 6\n"" = 6', "case.toml:23: a parameter needs a name"),
    ('dist = "norm"', 'dist = "nrm"', "case.toml:20: `dist='nrm'` is not a distribution of numbers of scipy.stats. Did you mean 'norm'?"),
    ('dist = "norm"', 'dist = "poisson"', "It is one of whole numbers"),
    ('dist = "norm", ', "", "case.toml:20: `prior` needs `dist`"),
    ("loc = 0.8", "lok = 0.8", "case.toml:20: unknown key 'lok' in parameters.m.prior; did you mean 'loc'?"),
    ("scale = 0.1 }", "scale = 0 }", "case.toml:20: there is no distribution 'norm' of loc = 0.8, scale = 0"),
    ("scale = 0.1 }", "scale = 'x' }", "case.toml:20: `scale` of a prior must be a number; got 'x'"),
    ('dist = "norm", loc = 0.8, scale = 0.1', 'dist = "gamma"', "case.toml:20: the distribution 'gamma' needs 'a'"),
    ('dist = "norm", loc = 0.8, scale = 0.1', 'dist = "uniform"', "", ),
    ('dist = "norm", loc = 0.8, scale = 0.1', 'dist = "uniform", loc = 1', "case.toml:20: `start` of 'm' is 0.8, where its prior has no density; that of 'uniform' lies between 1 and 2"),
    # conditions, events, forcings
    ("[cost]", "[conditions]\nfile = 'c.csv'\n[cost]", "`conditions` need `entity` in [data]"),
    ("[cost]", "[events]\nfile = 'no.csv'\n[cost]", "case.toml:6: there is no file"),
    ("[cost]", "[[events]]\nvar = 'Hair'\ntime = 1901\nvalue = 1\n[cost]", "case.toml:5: 'Hair' is not a state. Did you mean 'Hare'?"),
    ("[cost]", "[[events]]\nvar = 'Hare'\ntime = 'x'\nvalue = 1\n[cost]", "the time is 'x'; a finite number is needed"),
    ("[cost]", "[[events]]\nvar = 'Hare'\ntme = 1901\nvalue = 1\n[cost]", "'tme'"),
    ("[cost]", "[[events]]\nvar = 'Hare'\ntime = [1]\nvalue = 1\n[cost]", "case.toml:7: `time` must be a number or a text; got [1]"),
    ("[cost]", "[forcings]\nu = { time = [0, 1], value = [1] }\n[cost]", "case.toml:6: the forcing 'u' has 2 times and 1 values"),
    ("[cost]", "[forcings]\nu = { time = [1, 0], value = [1, 2] }\n[cost]", "case.toml:6: time 0 comes after 1; times must increase"),
    ("[cost]", "[forcings]\nu = { time = [0, 1] }\n[cost]", "case.toml:6: the forcing 'u' needs `file`, or `time` and `value`; `value` is missing"),
    ("[cost]", "[forcings]\nu = { time = [0, 1], value = [1, 2], interpolation = 'cubic' }\n[cost]", "case.toml:6: `interpolation='cubic'` is not known"),
    ("[cost]", "[forcings]\nu = { time = [0, 1], value = [1, 2] }\n[cost]", "The forcing 'u' is used nowhere in the model"),
    # steps
    ("[fit]", "[fit]\nmethod = 'Mark'", "case.toml:26: `method='Mark'` is not known. Choose one of 'Marq'"),
    ("[fit]", "[fit]\nmetod = 'Marq'", "case.toml:26: unknown key 'metod' in fit; did you mean 'method'?"),
    ("[fit]", "[fit]\nmethod = 'scoring'", "case.toml:26: method='scoring' needs a cost with a score"),
    ("[fit]", "[fit]\ncontrol = { maxitr = 3 }", "case.toml:26: `control`: Marq has no 'maxitr'. Did you mean 'maxiter'?"),
    ("[fit]", "[fit]\nmethod = 'Pseudo'", ""),
    ("[fit]", "[fit]\nlower = 0", "case.toml:26: unknown key 'lower' in fit"),
    ('loc = 0.8, scale = 0.1 } }\nHare0 = 34.0\nLynx0 = 6\n[screen]\ncollin = true\n[fit]', 'loc = 0.8, scale = 0.1 } }\nHare0 = { start = 34.0, prior = { dist = "gamma", a = 34 } }\nLynx0 = 6\n[fit]\nmethod = "Marq"', "case.toml:24: method='Marq' takes normal priors only"),
    ("[fit]\n[profile]", "[profile]", "needs the step 'fit', which is neither in the file nor done"),
    ('which = ["r"]', 'which = ["R"]', "case.toml:27: "),
    ('which = ["r"]', 'which = ["r"]\nlevel = 95', "case.toml:28: `level` must be above 0 and below 1; got 95"),
    ('which = ["r"]', 'which = ["r"]\nnum = 1', "case.toml:28: `num` must be at least 5; got 1"),
    ("niter = 200", "niter = 0", "case.toml:29: `niter` must be at least 1; got 0"),
    ("niter = 200", "niter = 200.5", "case.toml:29: `niter` must be a whole number; got 200.5"),
    ("burninlength = 50", "burninlength = 500", "case.toml:30: `burninlength` = 500 leaves nothing of 200 iterations"),
    ("niter = 200", "niter = 200\nmethod = 'drum'", "case.toml:30: `method='drum'` is not known. Choose one of 'dram', 'demcz', 'emcee', 'nuts'. Did you mean 'dram'?"),
    ("niter = 200", "niter = 200\nwvar0 = -1", "case.toml:30: `wvar0` must be at least 0; got -1"),
    ("niter = 200", "niter = 200\nn0 = [1, -2]", "at least 0; got -2"),
    ("niter = 200", "niter = 200\nchains = -1", "case.toml:30: `chains` must be at least 1; got -1"),
    ("niter = 200", "niter = 200\nseed = 3", "case.toml:30: unknown key 'seed' in sample"),
    ("niter = 200", "niter = 200\ncontrol = { walkers = 3 }", "case.toml:30: method='dram' has no `control`"),
    ("num = 5", "num = 5\nsensvar = ['Hair']", "case.toml:33: "),
    ("num = 5", "num = 5\nwith_error = 'yes'", "case.toml:33: `with_error` must be true or false; got 'yes'"),
    ("num = 5", "num = 5\n[scenarios]", "case.toml:33: the key `table` is missing in scenarios"),
    ("num = 5", "num = 5\n[scenarios]\ntable = 'what.csv'", "case.toml:34: there is no file"),
    ("num = 5", "num = 5\n[filter]", "case.toml:33: `filter` is the filter of a cost of kind"),
    # demands and run
    ("rhat = 1.1", "rhatt = 1.1", "case.toml:34: unknown key 'rhatt' in require; did you mean 'rhat'?"),
    ("rhat = 1.1", "rhat = 0.5", "case.toml:34: `rhat` must be above 1; got 0.5"),
    ("[sample]\nniter = 200\nburninlength = 50\n[ranges]\nnum = 5\n", "", "`rhat` is demanded of the step sample, which is not in the file"),
    ("seed = 1", "seed = -1", "case.toml:36: `seed` must be at least 0; got -1"),
    ("seed = 1", "executor = 0", "case.toml:36: `executor` must be at least 1"),
    ("seed = 1", "outptu = 'x'", "case.toml:36: unknown key 'outptu' in run; did you mean 'output'?"),
]  # fmt: skip
DATA_MISTAKES = [
    ("1902,70.2,9.8", "1902,seventy,9.8", "lynx.csv:4: 'seventy' in column 'Hare' is not a number"),
    ("1902,70.2", "1902-01-01,70.2", "lynx.csv:4: '1902-01-01' in column 'year' is not a number. Write dates as 2001-12-31, in all cells"),
    ("1902,70.2", ",70.2", "lynx.csv:4: the value in column 'year' is missing"),
    ("1902,70.2,9.8", "1902,70.2", "lynx.csv:4: there are 2 cells, and 3 columns"),
    ("1902,70.2,9.8", "1902,70,2,9.8", "lynx.csv:4: there are 4 cells, and 3 columns. (A number with a decimal comma?)"),
    ("Hare", "Hair", "lynx.csv:1: the column 'Hair' is not a variable of the model. Did you mean 'Hare'?"),
    ("Hare", "pelts", "If it measures something of the model, say what, in [model]: outputs = { pelts = "),
    ("Hare", "pelts sold", 'outputs = { "pelts sold" = '),
    ("year,Hare,Lynx", "year,Hare,Hare", "lynx.csv:1: there are two columns 'Hare'; name them apart"),
    ("year,Hare,Lynx\n", "", "lynx.csv:1: the first line must hold the names of the columns"),
    ("1902,70.2", "1902,-70.2", "lynx.csv:4: The observation of 'Hare' in line 4 is -70.2, which has no log"),
    ("1905,20.6,41.7", "1995,20.6,41.7", "lie outside the model's range"),
    ('1902,70.2', '1902,"70.2', "lynx.csv:4: this cannot be read"),
    (DATA, "", "lynx.csv is empty"),
    (DATA, "year,Hare,Lynx\n", "lynx.csv:1: the table holds no rows"),
    (DATA, "year\n1900\n", "lynx.csv:1: there is no column of observations: all"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "case.toml").write_text(CASE, encoding="utf-8")
    (tmp_path / "lynx.csv").write_text(DATA, encoding="utf-8")
    return tmp_path


def checked(folder, capsys):
    """Return the exit code of `fmepy check`, and what it told on stderr."""
    code = main(["check", str(folder / "case.toml")])
    told = capsys.readouterr()
    return code, told.err, told.out


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_file_without_a_mistake_passes(folder, capsys):
    code, err, out = checked(folder, capsys)
    assert code == 0, err
    assert "lynx.csv: 6 rows; columns year, Hare, Lynx" in out
    assert sorted(p.name for p in folder.iterdir()) == ["case.toml", "lynx.csv"], "it writes nothing"


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_mistake_in_the_file_is_told_with_its_line(folder, capsys, old, new, said):
    edit(folder / "case.toml", old, new)
    code, err, _ = checked(folder, capsys)
    if not said:  # what looks wrong and is not
        assert code == 0, err
        return
    assert said in err
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize(("old", "new", "said"), DATA_MISTAKES)
def test_a_mistake_in_the_data_is_told_with_its_line(folder, capsys, old, new, said):
    edit(folder / "lynx.csv", old, new)
    code, err, _ = checked(folder, capsys)
    assert said in err
    assert code == 2


PONDS = [
    ("pond,Hare0\nnorth,30\nsouth,two\n", "ponds.csv:3: 'Hare0' of entity 'south' is 'two', which is neither a number nor a parameter"),
    ("pond,Hare0\nnorth,\nsouth,20\n", "ponds.csv:2: 'Hare0' of entity 'north' is missing"),
    ("pond,Hare0\nnorth,x\nsouth,y\n", "ponds.csv:2: 'Hare0' of entity 'north' is 'x', which is neither a number nor a parameter"),
    ("pond,Hare0\nnorth,30\n", "ponds.csv:1: `conditions` has no row for 'south'"),
    ("pond,Hare0\nnorth,30\nsouth,2\nsouth,3\n", "ponds.csv:4: `conditions` has several rows of entity 'south'; one row an entity is needed.\n"),
    ("# a remark\npond,Hare0\nnorth,30\nsouth,2\nwest,3\n", "ponds.csv:5: there are no data of 'west'"),
    ("pond,Hare0,rr\nnorth,30,1\nsouth,2,1\n", "ponds.csv:1: the column 'rr' is not a parameter. Did you mean 'r'?"),
    ("pond,Hare0\nnorth,30\nsouth,inf\n", "ponds.csv:3: 'Hare0' of entity 'south' is inf"),
    ("pond,Hare0,start_from\nnorth,30,wst\nsouth,2,\n", "ponds.csv:2: 'start_from' of entity 'north' is 'wst', which is not a row"),
    ("pond,Hare0\nnorth,Lynx0\nsouth,20\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(("table", "said"), PONDS)
def test_a_mistake_in_the_conditions_is_told_with_the_line_of_their_file(folder, capsys, table, said):
    rows = [f"{line},{pond}" for line in DATA.splitlines()[1:] for pond in ("north", "south")]
    (folder / "lynx.csv").write_text("\n".join(["year,Hare,Lynx,pond", *rows]))
    (folder / "ponds.csv").write_text(table)
    edit(folder / "case.toml", 'x = "year"', 'x = "year"\nentity = "pond"\n[conditions]\nfile = "ponds.csv"')
    edit(folder / "case.toml", "Hare0 = 34.0\n", "")
    code, err, _ = checked(folder, capsys)
    assert said in err
    assert code == (2 if said else 0), err
