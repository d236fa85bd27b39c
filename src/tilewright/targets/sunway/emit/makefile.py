"""The makefile of a package: for the machine's compiler, and for the shim on the host."""

from __future__ import annotations

from collections.abc import Sequence

SHIM_FLAGS = ("-std=gnu99", "-fno-pie", "-fno-strict-aliasing", "-Ishim")
SHIM_LINK = ("-no-pie", "-pthread", "-Wl,--section-start=shim_ldm=0x70000000")
"""LDM lies apart from everything, where the pages of each CPE can be mapped in turn."""


def makefile_text(
    name: str, layers: Sequence[str], slaves: Sequence[str], *, threads: bool = False
) -> str:
    """The text; with ``threads``, of a program of several MPEs."""
    return f"""\
# make        {name}_sw26010, with the machine's compiler: MPE and CPE programs are compiled apart
#             and linked into one static executable
# make shim   {name}_shim, which runs on this computer
SW5CC ?= sw5cc
HOSTFLAGS ?= -O2
# Public programs report slave files that hang at -O2.
SLAVEFLAGS ?= -O1
CC ?= cc
CFLAGS ?= -O2 -Wall -Wextra

LAYERS = {_listed(layers)}
SLAVES = {_listed(slaves)}

MPE = main.c $(LAYERS:%=layers/%.c)
CPE = slave/ldm_slave.c $(SLAVES:%=layers/%_slave.c)
SHIM = $(wildcard shim/*.c)
HEADERS = $(wildcard *.h layers/*.h slave/*.h mpe/*.h)

all: {name}_sw26010

{name}_sw26010: $(MPE:%.c=%.mpe.o) $(CPE:%.c=%.cpe.o)
	$(SW5CC) -hybrid $^ -o $@ -lm{" -lpthread" if threads else ""}

%.mpe.o: %.c $(HEADERS)
	$(SW5CC) -host -std=gnu99 $(HOSTFLAGS) -c $< -o $@

%.cpe.o: %.c $(HEADERS)
	$(SW5CC) -slave -msimd -std=gnu99 $(SLAVEFLAGS) -c $< -o $@

shim: {name}_shim

{name}_shim: $(MPE:%.c=%.shim.o) $(CPE:%.c=%.shim.o) $(SHIM:%.c=%.shim.o)
	$(CC) $(CFLAGS) {" ".join(SHIM_LINK)} $^ -o $@ -lm

%.shim.o: %.c $(HEADERS) $(wildcard shim/*.h)
	$(CC) {" ".join(SHIM_FLAGS)} $(CFLAGS) -c $< -o $@

clean:
	rm -f {name}_sw26010 {name}_shim *.o */*.o

.PHONY: all shim clean
"""


def _listed(names: Sequence[str]) -> str:
    return " \\\n    ".join(names)
