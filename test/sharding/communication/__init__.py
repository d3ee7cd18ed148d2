"""Communication: which bytes each change of layout sends."""
