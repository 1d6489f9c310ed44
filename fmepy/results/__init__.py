"""Tables that print, and show in a notebook."""
