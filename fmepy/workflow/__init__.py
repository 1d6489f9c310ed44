"""The command line: models described in files, run and looked at from a terminal.

A subcommand is a file here with a function ``add(commands)``, which declares its arguments, and one line in
`command.COMMANDS`. What several of them read (TOML with the lines of its keys, a model in it) is `toml` and
`model_file`.
"""
