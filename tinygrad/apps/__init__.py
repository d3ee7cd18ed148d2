"""Programs made of the library, above all its other parts."""
