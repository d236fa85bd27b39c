"""The instructions of a CNN core, as planning prices them."""
