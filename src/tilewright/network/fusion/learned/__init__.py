"""The learned cost of kernels: the third source of the fusion search's costs.

    features.py   what a kernel's cycles depend on, read off its tile program
    model.py      coefficients of the features, their file, and how they are fitted
    training.py   which kernels of networks are simulated for it

The method is that of DNNVM (section 5.1): a model fitted to simulated kernels prices others
without a simulation.
"""
