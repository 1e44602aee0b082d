"""Builds the compiled kernel. Where no compiler is, a warning says so, and the plain kernel serves.

BOLIDE_KERNEL=compiled has it fail instead: what is published has a kernel (`.ci/wheels`).
With BOLIDE_SANITIZE=1 the kernel looks at every access and every sum while it runs (`make sanitize`); `-fno-wrapv` is
there because Python's own flags say that sums may wrap, and then nobody would hear of one that does.
"""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

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
is_needed = is_sanitized or os.environ.get("BOLIDE_KERNEL") == "compiled"


class BuildKernel(build_ext):
    """A missing compiler is no reason to have no broker."""

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except (CCompilerError, BaseError, OSError) as problem:
            if is_needed:
                raise
            extension.optional = True  # so that nobody looks for what it would have made
            sys.stderr.write(
                f"warning: the kernel of Bolide could not be compiled ({problem}), so its plain kernel serves: "
                "the same, slower. With a C compiler (on Debian: apt-get install gcc python3-dev) install it again.\n"
            )


setup(ext_modules=cythonize([kernel], compiler_directives={"language_level": 3}), cmdclass={"build_ext": BuildKernel})
