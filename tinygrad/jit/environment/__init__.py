"""The environment of a function: the values that its code finds by name, arguments aside.

Examples are weights in attributes, globals and closure cells. In order:

    code_names.py   the names of globals, attributes and keys in the function's code
    inspection.py   attributes and functions of objects, without running their code
    survey.py       all places that these names lead to, and the value in each
    links.py        one such place: a container, a key, and the value there
    guards.py       a fast check that the places hold the same values
"""
