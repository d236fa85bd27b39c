"""The parallel model of 4.4.3: loops are peeled and macros moved, so that transfers run beside
computes."""
