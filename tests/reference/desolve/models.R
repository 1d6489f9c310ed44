# Published models by deSolve: what tests/models/test_published.py compares with.
# Run in this folder: Rscript models.R > models.json
library(deSolve)
run <- function(out, names) {
  out <- unclass(out)[, c("time", names)]
  apply(out, 1, function(row) paste0("[", paste(formatC(row, digits = 12, format = "g"), collapse = ", "), "]"))
}
# the compiled model of deSolve itself, light of 15 hours a day
algae <- c(maxPhotoSynt = 0.125, rMortPHY = 0.001, alpha = -0.125 / 150, pExudation = 0, maxProteinSynt = 0.136,
  ksDIN = 1, minpLMW = 0.05, maxpLMW = 0.15, minQuotum = 0.075, maxStorage = 0.23, respirationRate = 0.0001,
  pResp = 0.4, catabolismRate = 0.06, dilutionRate = 0.01, rNCProtein = 0.2, inputDIN = 10, rChlN = 1,
  parMean = 250, dayLength = 15)
state <- c(DIN = 6, PROTEIN = 20, RESERVE = 5, LMW = 1)
hours <- seq(0, 480, 0.5) # rows at the switches of light
light <- aquaphy(hours, state, algae, rtol = 1e-11, atol = 1e-11, hmax = 0.1)
# predator and prey in the light of the day of the year
day <- approxfun(0:365, 1 + 0.6 * sin(2 * pi * (0:365 - 80) / 365))
season <- ode(c(P = 5, Z = 1), 0:1095, function(t, y, p) {
  eaten <- 0.02 * y[1] * y[2] / (1 + 0.1 * y[1])
  list(c(0.1 * day(t %% 365) * y[1] * (1 - y[1] / 10) - eaten, 0.5 * eaten - 0.03 * y[2]))
}, NULL, rtol = 1e-11, atol = 1e-12, hmax = 1)
# the transistor amplifier of the test set for initial value problems, with its mass matrix
amplifier <- function(t, y, p) {
  g <- function(x) 1e-6 * (exp(x / 0.026) - 1)
  a <- g(y[2] - y[3]); b <- g(y[5] - y[6])
  list(-c((0.1 * sin(200 * pi * t) - y[1]) / 1000, 6 / 9000 - y[2] * 2 / 9000 - 0.01 * a, a - y[3] / 9000,
    6 / 9000 - y[4] / 9000 - 0.99 * a, 6 / 9000 - y[5] * 2 / 9000 - 0.01 * b, b - y[6] / 9000,
    6 / 9000 - y[7] / 9000 - 0.99 * b, -y[8] / 9000))
}
M <- matrix(0, 8, 8)
for (k in 1:3) { i <- 3 * k - 2; M[i:(i + 1), i:(i + 1)] <- (2 * k - 1) * 1e-6 * matrix(c(-1, 1, 1, -1), 2) }
M[3, 3] <- -2e-6; M[6, 6] <- -4e-6
current <- radau(setNames(c(0, 3, 3, 6, 3, 3, 6, 0), paste0("y", 1:8)), seq(0, 0.2, 0.001), amplifier, NULL, mass = M,
  nind = c(8, 0, 0), rtol = 1e-9, atol = 1e-9, hini = 1e-8, maxsteps = 1e6)
# a predator halved whenever there are three
prey <- function(t, y, p) {
  eaten <- 0.5 * y[1] * y[2] / (1 + y[1])
  list(c(y[1] * (1 - y[1] / 10) - eaten, 0.6 * eaten - 0.1 * y[2]))
}
hunted <- lsodar(c(N = 1, P = 2), 0:100, prey, NULL, rootfun = function(t, y, p) y[2] - 3,
  events = list(func = function(t, y, p) c(y[1], y[2] / 2), root = TRUE), rtol = 1e-11, atol = 1e-12)
cases <- list(
  aquaphy = run(light[hours %% 48 == 0, ], names(state)),
  season = run(season[seq(1, 1096, 73), ], c("P", "Z")),
  amplifier = run(current[seq(1, 201, 20), ], paste0("y", 1:8)),
  hunted = run(hunted[match(seq(0, 100, 10), hunted[, 1]), ], c("N", "P")),
  hits = formatC(attributes(hunted)$troot, digits = 12, format = "g")
)
cat("{\n")
cat(sprintf('  "provenance": "%s, deSolve %s: aquaphy, lsoda, radau (index 1), lsodar; rtol 1e-9 to 1e-11",\n',
  R.version.string, packageVersion("deSolve")))
cat(paste(sprintf('  "%s": [%s]', names(cases), sapply(cases, paste, collapse = ", ")), collapse = ",\n"))
cat("\n}\n")
