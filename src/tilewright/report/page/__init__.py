"""One page about a compiled network and its runs: figures as data, and the page that shows them."""
