"""Graph passes of processors alone: methods, kernels that become one, borders of images."""
