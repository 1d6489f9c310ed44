"""Every picture; functions take and return matplotlib Axes."""
