"""Fuzzing the readers of what comes from outside: checkpoints, deltas, pushed inputs.

`mutate` makes archives, `model` says what an archive means without any of our readers, `targets`
holds a reader against it, `__main__` (`make fuzz`) keeps going; a short form is a test.
"""
