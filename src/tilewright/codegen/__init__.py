"""The parts of code generation that several targets share."""
