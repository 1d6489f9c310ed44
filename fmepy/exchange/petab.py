"""PEtab."""


class PetabProblem: ...


def read_petab(path): ...
