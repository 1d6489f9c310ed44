# Delay differential equations by deSolve's dede: what tests/models/test_delays.py compares with.
# Run in this folder: Rscript dede.R > dede.json
library(deSolve)
options(digits = 15)
past <- function(t, history) if (t < 0) history(t) else lagvalue(t)
run <- function(y, times, f, parms, ...) {
  out <- dede(y, times, f, parms, rtol = 1e-11, atol = 1e-13, hmax = 0.1, control = list(mxhist = 1e6), ...)
  apply(unclass(out), 1, function(row) paste0("[", paste(formatC(row, digits = 12, format = "g"), collapse = ", "), "]"))
}
mackey_glass <- function(t, y, p) {
  x <- past(t - 17, function(s) c(0.5))
  list(0.2 * x[1] / (1 + x[1]^10) - 0.1 * y[1])
}
hutchinson <- function(t, y, p) list(y[1] * (1 - past(t - 1.5, function(s) c(2 + s))[1] / 10))
sir <- function(t, y, p) {
  ago <- past(t - 5, function(s) c(1, 0.01 * exp(s)))
  list(c(-0.5 * y[1] * y[2], 0.5 * y[1] * y[2] - 0.5 * ago[1] * ago[2]))
}
two <- function(t, y, p) {
  one <- past(t - 0.7, function(s) c(1, 0.5)); other <- past(t - 1.13, function(s) c(1, 0.5))
  list(c(-0.8 * one[1] + 0.3 * other[2] * y[1], -y[2] + one[1]))
}
cases <- list(
  mackey_glass = run(c(x = 0.5), seq(0, 150, 25), mackey_glass, NULL),
  hutchinson = run(c(N = 1), seq(0, 30, 5), hutchinson, NULL),
  sir = run(c(S = 0.99, I = 0.01), seq(0, 40, 8), sir, NULL),
  two = run(c(x = 1, y = 0.5), seq(0, 10, 2), two, NULL)
)
cat("{\n")
cat(sprintf('  "provenance": "%s, deSolve %s, dede (lsoda), rtol 1e-11, hmax 0.1",\n', R.version.string, packageVersion("deSolve")))
cat(paste(sprintf('  "%s": [%s]', names(cases), sapply(cases, paste, collapse = ", ")), collapse = ",\n"))
cat("\n}\n")
