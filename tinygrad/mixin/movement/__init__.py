"""Movement: shapes, windows, named axes. No element is computed."""
