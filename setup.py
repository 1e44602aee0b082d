"""Builds the compiled kernel. Where no compiler is, the wheel still works: the plain kernel serves.

With BOLIDE_SANITIZE=1 the kernel looks at every access and every sum while it runs (`make sanitize`); `-fno-wrapv` is
there because Python's own flags say that sums may wrap, and then nobody would hear of one that does.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZED = [
    "-O1",
    "-g",
    "-fno-wrapv",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize=nonnull-attribute",  # nothing may be copied from nowhere: C will say so too
    "-fno-sanitize-recover=all",
    "-fsanitize-coverage=trace-pc",  # for the fuzz: tests/fuzz/edges.c is told
]
is_sanitized = os.environ.get("BOLIDE_SANITIZE") == "1"

kernel = Extension(
    "bolide.kernel.compiled",
    ["src/bolide/kernel/compiled.pyx"],
    extra_compile_args=SANITIZED if is_sanitized else ["-O3"],
    extra_link_args=["-fsanitize=address,undefined"] if is_sanitized else [],
)
extensions = cythonize([kernel], compiler_directives={"language_level": 3})
extensions[0].optional = not is_sanitized  # a missing compiler is no reason to have no broker, and cythonize forgets it
setup(ext_modules=extensions)
