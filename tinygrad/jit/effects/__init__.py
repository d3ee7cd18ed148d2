"""The effects of a captured call: what it leaves behind, and what each replay must leave.

Observing a call:

    recording.py            the tensors before a call, and those that it must realize
    known_memory.py         where a tensor was when a call was captured: is it there still?
    places.py               where the function keeps tensors: attributes, lists, dicts
    python_state.py         Python values that the call changes, for which it runs again
    python_sources.py       iterators and random generators, whose next values a replay lacks

Repeating its effects:

    results.py              the result of each call, and the tensors that it keeps elsewhere
    templates.py            results and kept tensors that are new in each call

Protecting values from them:

    written_memory.py       nobody reads the older content of memory that a replay overwrites
"""
