"""Models: values against numpy, on one device and on several."""
