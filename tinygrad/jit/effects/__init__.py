"""The effects of a captured call: what it leaves behind, and what each replay must leave.

Observing a call:

    recording.py            the tensors before a call, and those that it must realize
    stored_tensor.py        a tensor in memory when a call began: was it moved since?
    places.py               where the function keeps tensors: attributes, lists, dicts
    python_state.py         Python values that the call changes, for which it runs again
    python_sources.py       iterators and random generators, whose next values a replay lacks

Repeating its effects:

    results.py              the result of each call, and the tensors that it keeps elsewhere
    persistent_results.py   results that are the same tensors in each call
    templates.py            results and kept tensors that are new in each call

Protecting values from them:

    written_memory.py       lazy values that read memory which a replay overwrites
    known_references.py     reference counts, which show that there are none
"""
