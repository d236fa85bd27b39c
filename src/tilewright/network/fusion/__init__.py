"""Fusion: which kernels of a network are computed as one, by search in its dependence graph.

    graph.py        the network's kernels and the tensors between them
    matching.py     where a machine's patterns (machine/patterns.py) occur in it
    capacity.py     which of these places have room in their memories
    forms.py        the kernels that the compiler can make of a group today
    cost.py         cycles of a group, or the reason why it cannot be one kernel
    search/         which groups are taken together
    plan.py         the result, as text and JSON

The method is that of DNNVM (Xing et al., "DNNVM: End-to-End Compiler Leveraging Heterogeneous
Optimizations on FPGA-Based CNN Accelerators", 2019), sections 4 and 5.
"""
