"""The learned cost of kernels: the third source of the fusion search's costs.

    instructions.py   the instructions of a kernel, read off its tile program
    dependences.py    what each of them waits for
    pipeline.py       how long they take together
    fitting.py        how they really differ, fitted to simulated kernels
    model.py          the fitted values, and their file
    training.py       which kernels of networks are simulated for it

The method is that of DNNVM (section 5.1): a model fitted to simulated kernels prices others
without a simulation.
"""
