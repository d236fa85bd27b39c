"""Tensors that stay on the chip from the first kernel that reads them to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.ir import SSAValue
from tilewright.machine import Machine, Memory
from tilewright.memory import align_up
from tilewright.network.candidates import Trials
from tilewright.network.resident_values import HeldKernel
from tilewright.planning import Plan, PlanCache, plan
from tilewright.planning.domain import Kernel
from tilewright.planning.held import holding
from tilewright.targets.base import CompiledKernel, RunTimer


@dataclass
class _Search:
    network: NetworkOp
    machine: Machine
    kernels: Mapping[str, Kernel]
    plans: Mapping[str, Plan]
    run_timer: RunTimer
    memory: Memory
    found: dict[str, HeldKernel] = field(default_factory=dict[str, HeldKernel])
    caches: dict[int, PlanCache] = field(default_factory=dict[int, PlanCache])

    def run(self):
        self.trials = Trials(self.network, self.machine, self.kernels, self.plans, {})
        for row in self._rows():
            self.row = row
            done = 0
            for value, readers in self._shared(row):
                first, last = row.index(readers[0]), row.index(readers[-1])
                if first < done:
                    continue
                best = self._best(value, readers, row[first:last+1], row[max(first-1,0): last+2])
                if best:
                    self.found |= best
                    done = last + 1
        return self.found

    def _rows(self):
        rows = [[]]
        for op in self.network.block.ops:
            if isinstance(op, KernelOp):
                if op.symbol.data in self.plans: rows[-1].append(op.symbol.data)
                else: rows.append([])
        return rows

    def _shared(self, row):
        readers = {}
        for symbol in row:
            kernel = self.kernels[symbol]
            values = operand_values(self.trials.ops[symbol], self.trials.names)
            for o in kernel.inputs:
                v = values[o.name]
                if o.role == "input" and not isinstance(v.owner, WeightOp):
                    readers.setdefault(v, {})[symbol] = o.name
        return [(v, list(r)) for v, r in readers.items() if len(r) > 1]

    def _best(self, value, readers, inside, around):
        name = self.trials.names[value]
        before = self._time(around, {})
        size = self._bytes(name, readers)
        left = (self.memory.bytes - size)
        print(name, [*readers], "size", size, "left", left, "before", before)
        if left <= 0: return {}
        trial = {}
        small = self.machine.with_values({f"memory.{self.memory.name}.bytes": left})
        cache = self.caches.setdefault(left, {})
        for symbol in inside:
            kernel = self.kernels[symbol]
            try:
                if symbol in readers:
                    p = plan(holding(kernel, {name}, self.memory.name), small, cache=cache)
                    s = replace(p.schedule, stays=(name,))
                    trial[symbol] = HeldKernel(kernel, self.machine, replace(p, schedule=s), self.memory.name, {})
                else:
                    trial[symbol] = HeldKernel(kernel, small, plan(kernel, small, cache=cache), self.memory.name, {})
                print("   ", symbol, round(self.plans[symbol].cycles), round(trial[symbol].plan.cycles), trial[symbol].plan.schedule)
            except TilewrightError as e:
                print("   ", symbol, e); return {}
        after = self._time(around, trial)
        print("   ->", before, after)
        return trial if after < before else {}

    def _bytes(self, name, readers):
        from tilewright.tile.lower import tile
        from tilewright.tile.dialect import BufferOp
        most = 0
        for symbol in readers:
            kernel = self.kernels[symbol]
            (o,) = [o for o in kernel.inputs if o.name == name]
            prim = self.machine.primitive(self._prim(symbol, name))
            st = prim.operands["input"]
            size = 1
            for axis, n in zip(o.access, o.shape): size *= align_up(n, axis.granule(st.multiples))
            most = max(most, align_up(size, self.memory.granule))
        return most

    def _prim(self, symbol, name):
        kernel, s = self.kernels[symbol], self.plans[symbol].schedule
        def find(k, s):
            if any(o.name == name for st in k.stages for o in st.inputs): return s.primitive
            for a, b in zip(k.producers, s.producers):
                r = find(a, b)
                if r: return r
        return find(kernel, s)

    def _time(self, around, trial):
        made = []
        for symbol in around:
            one = trial.get(symbol) or self.found.get(symbol)
            p, m = (self.plans[symbol], self.machine) if one is None else (one.plan, one.machine)
            made.append(self.trials.compiled(symbol, p.schedule, m, cycles=p.cycles))
        try:
            return self.run_timer(made)
        except TilewrightError as e:
            print("time", e)
            return inf


def hold_inputs(network, machine, kernels, plans, run_timer):
    memory = next((m for m in machine.memories if m.shares), None)
    if memory is None or run_timer is None:
        return {}
    return _Search(network, machine, kernels, plans, run_timer, memory).run()
