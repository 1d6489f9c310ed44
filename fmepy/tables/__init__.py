"""Tables of users: frames, text files, SQLite; each cell with its place."""
