"""Loops: repeated execution settles as the theory says, minimisation does where it does not; what is left is told."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.errors import SimulationError
from tests.dmi.runs import program_of, run, table_of


def test_statements_written_backwards_settle_after_as_many_executions_as_there_are():
    text = "z = sin(x) + y\ny = x ** 2\nx = c"
    program = program_of(text, order="written")
    done = run(program, 2, c=3.0)
    assert done.convergence.executions.tolist() == [4, 1, 1]  # the fourth finds nothing new; from right values one does
    in_order = program_of(text)
    once = run(in_order, 2, c=3.0)
    assert len(once.convergence) == 0
    np.testing.assert_array_equal(once.rows, done.rows)
    kept = run(program_of(text, order="written", max_iterations=3, unsettled="keep"), 0, c=3.0)
    np.testing.assert_array_equal(kept.rows[0], once.rows[0])


# --- weak feedback: v = (A + eps B) v + c


def _text(M, c, rows):
    def line(i):
        return " ".join(
            f"{'+' if M[i, j] >= 0 else '-'} {abs(float(M[i, j]))!r} * v{j}" for j in range(len(M)) if M[i, j]
        )

    return "\n".join(f"v{i} = {float(c[i])!r} {line(i)}" for i in rows)


def _executed(M, c, rows, m):
    """Return the values after m executions, by a plain loop."""
    v = np.zeros(len(c))
    for _ in range(m):
        for i in rows:
            v[i] = M[i] @ v + c[i]
    return v


def _run_of(M, c, rows, **how):
    program = program_of(_text(M, c, rows), order="written", outputs=[f"v{i}" for i in range(len(c))], **how)
    return run(program, 0)


@pytest.fixture(scope="module")
def feedback():
    rng = np.random.default_rng(8)
    A = np.tril(rng.normal(size=(20, 20)), -1)
    B = rng.normal(size=(20, 20))
    A, B = A / np.linalg.norm(A, 2), B / np.linalg.norm(B, 2)
    return A.round(12), B.round(12), rng.normal(size=20).round(12)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_with_weak_feedback_the_error_falls_with_the_power_of_the_executions(feedback, m):
    A, B, c = feedback
    sizes, errors = (3e-2, 1e-2, 3e-3), []
    for eps in sizes:
        M = A + eps * B
        done = _run_of(M, c, range(20), max_iterations=m, unsettled="keep")
        np.testing.assert_allclose(done.rows[0], _executed(M, c, range(20), m), rtol=1e-12, atol=1e-14)
        errors.append(np.linalg.norm(done.rows[0] - np.linalg.solve(np.eye(20) - M, c)))
    slopes = np.diff(np.log(errors)) / np.diff(np.log(sizes))
    np.testing.assert_allclose(slopes, m, atol=0.1)


def test_with_blocks_written_in_the_wrong_order_the_error_falls_with_half_the_power():
    rng = np.random.default_rng(3)
    A = np.zeros((20, 20))
    A[10:, :10] = rng.normal(size=(10, 10))
    A, B = A / np.linalg.norm(A, 2), rng.normal(size=(20, 20))
    B, c = B / np.linalg.norm(B, 2), rng.normal(size=20)
    rows = [*range(10, 20), *range(10)]  # what needs the others comes first: nilpotent of index 2
    sizes = (3e-2, 1e-2, 3e-3)
    for m in (2, 4):
        errors = []
        for eps in sizes:
            M = A + eps * B
            done = _run_of(M, c, rows, max_iterations=m, unsettled="keep")
            np.testing.assert_allclose(done.rows[0], _executed(M, c, rows, m), rtol=1e-12, atol=1e-14)
            errors.append(np.linalg.norm(done.rows[0] - np.linalg.solve(np.eye(20) - M, c)))
        assert (np.diff(np.log(errors)) / np.diff(np.log(sizes)) >= m // 2 - 0.1).all()


def test_what_settles_is_the_solution(feedback):
    A, B, c = feedback
    M = A + 0.03 * B
    done = _run_of(M, c, range(20), max_iterations=60, tol=1e-13)
    np.testing.assert_allclose(done.rows[0], np.linalg.solve(np.eye(20) - M, c), rtol=0, atol=1e-10)
    assert done.convergence.residual[0] <= 1e-13 * max(1, abs(done.rows).max())


def test_moves_of_a_polynomial_system_fall_with_the_power_of_the_executions():
    text = "y = 1 + 0.5 * x ** 2\nz = x * y - 0.3\nx = 0.7 + eps * y * z"

    def move(eps, m):
        rows = [
            run(program_of(text, order="written", max_iterations=k, unsettled="keep"), 0, eps=eps).rows[0]
            for k in (m, m + 1)
        ]
        return np.linalg.norm(rows[1] - rows[0])

    for m in (2, 3):  # x comes last and is needed first: the first execution begins from nothing
        slope = np.log(move(1e-2, m) / move(1e-3, m)) / np.log(10)
        assert slope == pytest.approx(m - 1, abs=0.15)


# --- minimisation


def test_a_loop_that_repetition_drives_apart_is_minimised_and_put_back():
    program = program_of("x = 2 * y + 1\ny = x - 3 + 0.01 * z\nz = x * y\nd(L)/dt = z\nL(0) = 0")
    done = run(program, 2)
    found = table_of(program, done)
    x, y, z = found["x"], found["y"], found["z"]
    np.testing.assert_allclose([x - 2 * y - 1, y - x + 3 - 0.01 * z, z - x * y], 0, atol=1e-8)
    assert done.convergence.method.tolist() == [
        "minimised",
        "repeated",
        "repeated",
    ]  # the next step begins at the solution
    assert len(done.notes) == 1
    assert "did not settle in 10 executions" in done.notes[0]


def test_one_half_that_does_not_settle_leaves_the_other_in_peace():
    done = run(program_of("x = -1.5 * x + 1 + 0.0 * y\ny = 0.1 * x + 0.1 * y", max_iterations=20), 0)
    np.testing.assert_allclose(done.rows[0], [0.4, 0.04 / 0.9], rtol=1e-7)


def test_a_loop_without_a_solution_ends_the_run_and_says_what_is_left():
    program = program_of("x = y + 1\ny = x + 1")
    with pytest.raises(SimulationError) as caught:
        run(program, 3, start=7.0)
    for said in ("'x'", "'y'", "time 7 (step 0)", "in 10 executions nor by minimising", "x = ", "which moves by 2"):
        assert said in str(caught.value)
    assert caught.value.time == 7
    with pytest.raises(SimulationError, match="did not settle") as caught:
        run(program_of("x = y + 1\ny = x + 1", unsettled="error"), 3)
    assert "minimising" not in str(caught.value)
    kept = run(program_of("x = y + 1\ny = x + 1", unsettled="keep"), 1)
    assert kept.convergence.method.tolist() == ["kept", "kept"]
    assert sorted(kept.rows[0].tolist()) == [19, 20]


def test_a_loop_without_any_numbers_ends_the_run_and_says_so():
    told = r"did not settle at time 0 \(step 0\) in 10 executions nor by minimising .* moves by nan"
    with pytest.raises(SimulationError, match=told):
        run(program_of("x = log(y - 1)\ny = 2 * x"), 1)


def test_the_first_guess_chooses_among_solutions():
    text = "x = 2 * x / (0.5 + x * x / 2 + 0.25)\nx(0) = {}"  # x = 0, and x = sqrt(2.5)
    up = run(program_of(text.format("g / 2"), max_iterations=200), 0, g=2.0)
    stays = run(program_of(text.format("0"), max_iterations=200), 0)
    assert up.rows[0, 0] == pytest.approx(np.sqrt(2.5))
    assert stays.rows[0, 0] == 0
    given = run(program_of("x = 2 * x / (0.75 + x * x / 2)", max_iterations=200), 0, x=1.0)
    assert given.rows[0, 0] == pytest.approx(np.sqrt(2.5))


def test_loops_are_among_the_variables_that_are_active():
    program = program_of("x = 0.1 * y + 1", "step 2\ny = 0.1 * x + t")
    done = run(program, 4, keep=[0, 1, 2, 3, 4])
    assert done.convergence.time.tolist() == [0, 2, 4]  # between, y is known
    y = [(0.1 + t) / 0.99 for t in (0, 2, 4)]
    np.testing.assert_allclose(done.rows[[0, 2, 4], 1], y, rtol=1e-8)
    np.testing.assert_allclose(done.rows[1, 0], 0.1 * y[0] + 1, rtol=1e-8)


def test_a_list_that_reads_its_own_elements_is_one_statement():
    program = program_of("dims D[2]\nD = [0.5 * D[1] + 1, 0.5 * D[0]]", max_iterations=1, unsettled="keep")
    found = table_of(program, run(program, 2))
    np.testing.assert_array_equal(found["D[0]"], [1, 1, 1.25])  # both from the values before
    np.testing.assert_array_equal(found["D[1]"], [0, 0.5, 0.5])
