"""LLVM's language to machine code, by llvmlite.

Before: compile/llvm.py.  After: compile/compiled.py.  The only module that knows llvmlite, which is imported late.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from functools import cache
from typing import Any

from .refused import Untraceable

TESTED = range(15, 24)
"""Major versions of LLVM. Masked operations and pointers without types read the same in all of them."""
_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_building = threading.Lock()  # llvmlite's own tables of targets and engines


class MachineCode:
    """Machine code in memory. It stays as long as this object."""

    def __init__(self, text: str, entry: str) -> None:
        binding = load_llvm()
        with _building:
            module = binding.parse_assembly(text)
            module.verify()
            target = _target(binding)
            options = binding.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = False  # vectors are written out already
            builder = binding.create_pass_builder(target, options)
            builder.getModulePassManager().run(module, builder)
            self._engine = binding.create_mcjit_compiler(module, target)
            self._engine.finalize_object()
            # Called without the interpreter lock, as all functions of ctypes are.
            self.run = _Function(self._engine.get_function_address(entry))


@cache
def load_llvm() -> Any:
    """Return llvmlite's binding, ready for this machine; raise if there is none that is known to work."""
    try:
        from llvmlite import binding
    except ImportError as error:
        raise Untraceable(f"llvmlite is not installed (pip install 'coexec[compile]'): {error}") from None
    major = binding.llvm_version_info[0]
    if major not in TESTED:
        raise Untraceable(f"llvmlite brings LLVM {major}; {TESTED.start} to {TESTED.stop - 1} are known to work")
    if platform.machine() not in ("x86_64", "AMD64"):
        raise Untraceable(f"compiled forms are for x86-64 processors, this is {platform.machine()}")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    register_bytes()
    return binding


@cache
def register_bytes() -> int:
    """Return the size of a vector register; raise on a processor without AVX2."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq") and features.get("avx512vl"):
        return 64
    if features.get("avx2"):
        return 32
    raise Untraceable("compiled forms need a processor with AVX2")


def _target(binding: Any) -> Any:
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3, jit=True
    )
