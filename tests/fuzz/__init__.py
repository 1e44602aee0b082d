"""Structure-aware fuzz of the kernel: every exported function, the compiled twin beside the plain one.

`python -m tests.fuzz --seconds 60` starts from the kept corpus (`corpus/`, a file for each function) and changes its
cases by a seed; a crash, a report of a sanitizer, a hang or a disagreement of the twins ends it and leaves the case in
`build/fuzz/`. With `--grow` cases that reach new edges of the compiled code are kept in the corpus.
"""
