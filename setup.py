"""Builds the compiled kernel. Where no compiler is, the wheel still works: the plain kernel serves."""

from Cython.Build import cythonize
from setuptools import Extension, setup

compiled = [
    Extension(
        f"bolide.kernel.{name}",
        [f"src/bolide/kernel/{name}.pyx"],
        extra_compile_args=["-O3"],
    )
    for name in (
        "compiled",
        "compiled_records",
        "compiled_sends",
        "compiled_pulls",
        "compiled_client",
        "compiled_columns",
        "compiled_rows",
        "compiled_filter",
        "compiled_ends",
        "compiled_waits",
    )
]
extensions = cythonize(compiled, compiler_directives={"language_level": 3})
for extension in extensions:
    extension.optional = True  # a missing compiler is no reason to have no broker, and cythonize forgets it
setup(ext_modules=extensions)
