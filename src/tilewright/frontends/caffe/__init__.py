"""Caffe models (a prototxt, and a caffemodel with the weights) become networks."""

from tilewright.frontends.caffe.importer import import_caffe

__all__ = ["import_caffe"]
