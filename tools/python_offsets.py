#!/usr/bin/env python3
"""tools/python_offsets.py [--check] INCLUDE...: what lifecycle/callers/python_known.def says, asked of the headers of real
interpreters. INCLUDE is a folder with Python.h and internal/ (python3-dev has them); `INCLUDE:t` asks for the free-threaded
build of the same headers. Prints the rows; with --check it changes nothing and exits 1 where a row of the file differs."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FILE = os.path.join(ROOT, "lifecycle/callers/python_known.def")

HEAD = r"""
#define Py_BUILD_CORE 1
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "internal/pycore_runtime.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"
#if PY_MINOR_VERSION >= 11
#include "internal/pycore_frame.h"
#endif
#if PY_MINOR_VERSION >= 14
#include "internal/pycore_interpframe.h"
#endif
/* the lowest bit of a bit field */
#define BIT(type, field) ({ union { type whole; unsigned word; } u; memset(&u, 0, sizeof(u)); u.whole.field = 1; __builtin_ctz(u.word); })
#define ROW(name) printf("%s(%d, %d", name, PY_MINOR_VERSION, FREE)
#define AT(type, field) printf(", %zu", offsetof(type, field))
#define NONE() printf(", 0")
#ifdef Py_GIL_DISABLED
#define FREE 1
#else
#define FREE 0
#endif
"""

# In the order of struct python_layout; python_known.def explains the columns.
KNOWN = r"""
	ROW("KNOWN");
	AT(_PyRuntimeState, interpreters.head); AT(_PyRuntimeState, _finalizing);
#if PY_MINOR_VERSION >= 12
	AT(_PyRuntimeState, autoTSSkey);
#else
	AT(_PyRuntimeState, gilstate.autoTSSkey);
#endif
	AT(PyInterpreterState, next);
#if PY_MINOR_VERSION >= 11
	AT(PyInterpreterState, threads.head);
#else
	AT(PyInterpreterState, tstate_head);
#endif
	AT(PyThreadState, prev); AT(PyThreadState, next); AT(PyThreadState, interp); AT(PyThreadState, thread_id);
#if PY_MINOR_VERSION >= 11
	AT(PyThreadState, native_thread_id);
#else
	NONE();
#endif
#if PY_MINOR_VERSION >= 12
	AT(PyThreadState, _status);
#else
	NONE();
#endif
#if PY_MINOR_VERSION >= 11
	AT(PyThreadState, cframe); AT(PyThreadState, cframe); AT(_PyCFrame, current_frame);
	AT(_PyInterpreterFrame, previous); AT(_PyInterpreterFrame, f_code); AT(_PyInterpreterFrame, owner);
	AT(PyCodeObject, co_filename); AT(PyCodeObject, co_qualname);
#else
	AT(PyThreadState, frame);
#if PY_MINOR_VERSION >= 10
	AT(PyThreadState, cframe);
#else
	NONE();
#endif
	NONE();
	AT(PyFrameObject, f_back); AT(PyFrameObject, f_code); NONE();
	AT(PyCodeObject, co_filename); AT(PyCodeObject, co_name);
#endif
	AT(PyObject, ob_type); AT(PyTypeObject, tp_name);
	AT(PyASCIIObject, length); AT(PyASCIIObject, state); printf(", %zu)\n", sizeof(PyASCIIObject));
"""

PUBLISHED = r"""
	ROW("PUBLISHED");
#define WORD(field) printf(", %zu", offsetof(_Py_DebugOffsets, field) / 8)
	WORD(runtime_state.interpreters_head); WORD(runtime_state.finalizing);
	WORD(interpreter_state.next); WORD(interpreter_state.threads_head);
	WORD(thread_state.prev); WORD(thread_state.next); WORD(thread_state.interp); WORD(thread_state.thread_id);
	WORD(thread_state.native_thread_id); WORD(thread_state.status); WORD(thread_state.current_frame);
	WORD(interpreter_frame.previous); WORD(interpreter_frame.executable); WORD(interpreter_frame.owner);
	WORD(code_object.filename); WORD(code_object.qualname);
	WORD(pyobject.ob_type); WORD(type_object.tp_name);
	WORD(unicode_object.length); WORD(unicode_object.state); WORD(unicode_object.asciiobject_size);
	printf(")\n");
"""

# Of every version: what nobody publishes. Bits of str.state and of the thread's status, and the head of a str that is not ASCII.
BITS = r"""
	ROW("BITS");
	printf(", %d, %d, %d", BIT(__typeof__(((PyASCIIObject *)0)->state), kind), BIT(__typeof__(((PyASCIIObject *)0)->state), compact),
		BIT(__typeof__(((PyASCIIObject *)0)->state), ascii));
	printf(", %zu", sizeof(PyCompactUnicodeObject) - sizeof(PyASCIIObject));
#if PY_MINOR_VERSION >= 12
	printf(", %d", BIT(__typeof__(((PyThreadState *)0)->_status), bound_gilstate));
#else
	NONE();
#endif
#if PY_MINOR_VERSION >= 14
	printf(", %d)\n", (int)FRAME_OWNED_BY_INTERPRETER);
#elif PY_MINOR_VERSION >= 12
	printf(", %d)\n", (int)FRAME_OWNED_BY_CSTACK);
#else
	printf(", 0)\n");
#endif
"""


def rows_of(include):
    folder, free = (include[:-2], ["-DPy_GIL_DISABLED=1"]) if include.endswith(":t") else (include, [])
    with open(os.path.join(folder, "patchlevel.h")) as text:
        minor = int(re.search(r"PY_MINOR_VERSION\s+(\d+)", text.read()).group(1))
    program = HEAD + "int main(void)\n{\n" + (KNOWN if minor < 13 else PUBLISHED) + BITS + "\treturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as made:
        source, binary = os.path.join(made, "ask.c"), os.path.join(made, "ask")
        with open(source, "w") as out:
            out.write(program)
        # The parent of the folder: Debian's pyconfig.h includes one by its processor's name from there.
        subprocess.run(["cc", "-w", "-std=gnu11", *free, "-I" + folder, "-I" + os.path.join(folder, "internal"),
                        "-I" + os.path.dirname(folder.rstrip("/")), "-Wl,--unresolved-symbols=ignore-all", source, "-o", binary], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    words = sys.argv[1:]
    check = words[:1] == ["--check"]
    includes = words[1:] if check else words
    if not includes or includes[0].startswith("-"):
        sys.exit(__doc__)
    with open(FILE) as text:
        there = text.read().splitlines()
    bad = 0
    for include in includes:
        for row in rows_of(include):
            if not check:
                print(row)
            elif row not in there:
                print("%s: differs from lifecycle/callers/python_known.def:\n  %s" % (include, row))
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
