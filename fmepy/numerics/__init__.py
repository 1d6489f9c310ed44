"""Pure arrays, no names: derivatives by differences."""
