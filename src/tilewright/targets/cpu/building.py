"""The files by which others build and use a package: make, CMake, pkg-config, a C++ class."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.c.compiler import CHOICE, FLAGS
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import Form
from tilewright.targets.cpu.processors import Processor

VERSION = "1.0"
"""Of the interface of packages, as pkg-config and CMake are told."""


SYSTEM_FLAGS = ("-fPIC", "-pthread")
"""Flags that ask for shared libraries and threads, which packages for no system do without."""


def bare_makefile_text(prefix: str, processor: Processor, sources: Sequence[str]) -> str:
    """A Makefile for the library of a package for no operating system."""
    flags = (flag for flag in FLAGS if flag not in (*CHOICE, *SYSTEM_FLAGS))
    return f"""# make CC=arm-none-eabi-gcc AR=arm-none-eabi-ar: the library to link with.
CC ?= cc
AR ?= ar
# Yours to replace: make CFLAGS="-Os -g". What the sources need comes before it.
CFLAGS ?= {" ".join(CHOICE)}
NEEDED := {" ".join((*flags, *processor.flags))} -ffunction-sections -fdata-sections

SOURCES := {_continued(sources)}
OBJECTS := $(SOURCES:.c=.o)

all: lib{prefix}.a

%.o: %.c $(wildcard src/*.h) include/{prefix}.h
	$(CC) $(NEEDED) $(CFLAGS) -Iinclude -c $< -o $@

lib{prefix}.a: $(OBJECTS)
	$(AR) rcs $@ $^

clean:
	rm -f $(OBJECTS) lib{prefix}.a

.PHONY: all clean
"""


def bare_cmake_text(prefix: str, processor: Processor, sources: Sequence[str]) -> str:
    """A CMake project of the library of a package for no operating system."""
    flags = [flag for flag in (*FLAGS, *processor.flags) if flag not in (*CHOICE, *SYSTEM_FLAGS)]
    kept = " ".join(flag for flag in flags if not flag.startswith("-std"))
    return f"""# Link with {prefix} after add_subdirectory().
cmake_minimum_required(VERSION 3.13)
project({prefix} VERSION {VERSION} LANGUAGES C)

set(CMAKE_C_STANDARD 99)
add_library({prefix} STATIC
{_lines(sources)}
)
set_target_properties({prefix} PROPERTIES C_EXTENSIONS ON)
target_compile_options({prefix} PRIVATE {kept} -ffunction-sections -fdata-sections)
target_include_directories({prefix} PUBLIC include)
"""


def _lines(sources: Sequence[str]) -> str:
    """Files for CMake, one a line: nothing else that lies in the folder is built."""
    return "\n".join(f"  {name}" for name in sources)


def _continued(sources: Sequence[str]) -> str:
    """The same for make."""
    return " \\\n  ".join(sources)


def makefile_text(prefix: str, processor: Processor, sources: Sequence[str], form: Form) -> str:
    """A Makefile for the libraries and the program, and to install them."""
    if form.bare:
        return bare_makefile_text(prefix, processor, sources)
    shared = f"$(DESTDIR)$(PREFIX)/share/{prefix}"
    weights = (
        f"	mkdir -p {shared}\n	cp weights.bin {shared}\n" if form.weights == "file" else ""
    )
    needed = " ".join(flag for flag in (*FLAGS, *processor.flags) if flag not in CHOICE)
    return f"""# make: the libraries and the program; they depend on nothing but a C compiler.
# make install PREFIX=/usr/local: headers, libraries, weights, and what pkg-config reads.
CC ?= cc
AR ?= ar
PREFIX ?= /usr/local
# Yours to replace: make CFLAGS="-O3 -g". What the sources need comes before it.
CFLAGS ?= {" ".join(CHOICE)}
NEEDED := {needed}

SOURCES := {_continued(sources)}
OBJECTS := $(SOURCES:.c=.o)

all: lib{prefix}.so lib{prefix}.a {prefix}

%.o: %.c $(wildcard src/*.h) include/{prefix}.h
	$(CC) $(NEEDED) $(CFLAGS) -Iinclude -c $< -o $@

lib{prefix}.so: $(OBJECTS)
	$(CC) $(NEEDED) $(CFLAGS) -shared $^ -o $@ -lm

lib{prefix}.a: $(OBJECTS)
	$(AR) rcs $@ $^

{prefix}: main.c $(OBJECTS)
	$(CC) $(NEEDED) $(CFLAGS) -Iinclude $^ -o $@ -lm

{prefix}.pc: {prefix}.pc.in
	sed 's|@PREFIX@|$(PREFIX)|' $< > $@

install: lib{prefix}.so lib{prefix}.a {prefix}.pc
	mkdir -p $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	cp include/{prefix}.h include/{prefix}.hpp $(DESTDIR)$(PREFIX)/include
	cp lib{prefix}.so lib{prefix}.a $(DESTDIR)$(PREFIX)/lib
	cp {prefix}.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig
{weights}
clean:
	rm -f $(OBJECTS) lib{prefix}.so lib{prefix}.a {prefix} {prefix}.pc

.PHONY: all clean install
"""


def cmake_text(prefix: str, processor: Processor, sources: Sequence[str], form: Form) -> str:
    """A CMake project: add_subdirectory it, or install it and find_package it."""
    if form.bare:
        return bare_cmake_text(prefix, processor, sources)
    in_c = form.weights == "array"
    weights = f"install(FILES weights.bin DESTINATION ${{CMAKE_INSTALL_DATADIR}}/{prefix})\n"
    flags = " ".join(f for f in (*FLAGS, *processor.flags) if not f.startswith(("-f", "-std")))
    return f"""# Link with {prefix}, after add_subdirectory() or, installed, find_package({prefix}).
cmake_minimum_required(VERSION 3.13)
project({prefix} VERSION {VERSION} LANGUAGES C)
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 99)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library({prefix}
{_lines(sources)}
)
set_target_properties({prefix} PROPERTIES POSITION_INDEPENDENT_CODE ON C_EXTENSIONS ON)
target_compile_options({prefix} PRIVATE {flags} -fno-math-errno)
target_include_directories({prefix} PUBLIC
  $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}/include>
  $<INSTALL_INTERFACE:${{CMAKE_INSTALL_INCLUDEDIR}}>)
target_link_libraries({prefix} PRIVATE m Threads::Threads)

add_executable({prefix}_main main.c)
target_link_libraries({prefix}_main PRIVATE {prefix})

set(PREFIX ${{CMAKE_INSTALL_PREFIX}})
configure_file({prefix}.pc.in {prefix}.pc @ONLY)
install(TARGETS {prefix} EXPORT {prefix}-config)
install(EXPORT {prefix}-config DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/cmake/{prefix})
install(FILES include/{prefix}.h include/{prefix}.hpp DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
{"" if in_c else weights}install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/{prefix}.pc
  DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/pkgconfig)
"""


def pkg_config_text(prefix: str, form: Form) -> str:
    """Return the file for pkg-config, with placeholders that an installation fills in."""
    weights = f"weights=${{prefix}}/share/{prefix}/weights.bin\n" if form.weights == "file" else ""
    return f"""prefix=@PREFIX@
includedir=${{prefix}}/include
libdir=${{prefix}}/lib
{weights}
Name: {prefix}
Description: A neural network in C
Version: {VERSION}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -l{prefix}
Libs.private: -lm -pthread
"""


_READ = """
        std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(
            std::fopen(weights.c_str(), "rb"), std::fclose);
        const std::size_t bytes = {upper}_WEIGHT_BYTES;
        if (!file || std::fread(weights_.get(), 1, bytes, file.get()) != bytes)
            throw std::runtime_error(weights + ": expected " + std::to_string(bytes) + " bytes");
        if ({prefix}_check_weights(weights_.get()))
            throw std::runtime_error(weights + ": these are not the weights of {prefix}");"""
"""How the class reads a file of weights."""


def class_text(prefix: str, inputs: Sequence[Port], outputs: Sequence[Port], form: Form) -> str:
    """A C++ header: one class that owns the weights, a workspace and a team of threads."""
    from_file = form.weights == "file"
    about = (
        "// Reads the weights from a file (weights.bin of the package).\n    " if from_file else ""
    )
    taken = "const std::string &weights, " if from_file else ""
    space = f"weights_(space({prefix.upper()}_WEIGHT_BYTES)),\n          " if from_file else ""
    read = _READ.format(prefix=prefix, upper=prefix.upper()) if from_file else ""
    weights = "weights_.get()" if from_file else f"{prefix}_weights"
    held = "Space weights_;\n    " if from_file else ""
    upper = prefix.upper()
    listed = [f"const {port.c_type} *{port.identifier}" for port in inputs]
    listed += [f"{port.c_type} *{port.identifier}" for port in outputs]
    names = ", ".join(port.identifier for port in [*inputs, *outputs])
    return f"""// {prefix} for C++11: weights, workspace and threads in one object; see {prefix}.h.
#ifndef {upper}_HPP
#define {upper}_HPP

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "{prefix}.h"

namespace {prefix}_network {{

// Runs the network; one run at a time. Objects are independent of each other.
class Network {{
public:
    {about}explicit Network({taken}int threads = 1)
        : {space}workspace_(space({upper}_TEAM_WORKSPACE_BYTES(threads < 1 ? 1 : threads))),
          team_(threads > 1 ? {prefix}_team_start(threads) : nullptr, {prefix}_team_stop)
    {{
        if (threads > 1 && !team_)
            throw std::runtime_error("{prefix}: the system does not start the threads");{read}
    }}

    void run({", ".join(listed)})
    {{
        {prefix}_run_by(team_.get(), {weights}, workspace_.get(), {names});
    }}

private:
    using Space = std::unique_ptr<void, void (*)(void *)>;
    using Team = std::unique_ptr<{prefix}_team, void (*)({prefix}_team *)>;

    static Space space(std::size_t bytes)
    {{
        void *found = nullptr;
        if (posix_memalign(&found, 64, bytes ? bytes : 64))
            throw std::bad_alloc();
        return Space(found, std::free);
    }}

    {held}Space workspace_;
    Team team_;
}};

}} // namespace {prefix}_network

#endif
"""
