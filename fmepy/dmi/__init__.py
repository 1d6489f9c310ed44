"""DMI: large models built from modules of statements and a data base kept apart from them."""
