"""HLAL: the high-level assembly language of the DLPlib/HLAL/DLIR thesis, chapter 4."""
