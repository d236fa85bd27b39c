from tilewright.graph.operation import MAXIMUM_RANK
from tilewright.graph.operations import BY_NAME
from tilewright.machine.dims import DIMS, RANK, dims_of
from tilewright.report.operators import samples_of

STAGES = {"depthwise_conv", "identity", "copy", "attention_weights"}
"""What loop nests are called that have no operation of their own."""


def test_every_operation_of_the_graph_has_dims():
    assert set(DIMS) == set(BY_NAME) | STAGES
    assert RANK == MAXIMUM_RANK


def test_dims_are_those_of_the_loop_nests():
    compared = 0
    for kind in BY_NAME.values():
        for operation in samples_of(kind):
            stage = operation.stage([f"x{i}" for i in range(len(operation.inputs))], "y")
            if stage is not None:
                names = {dim.name for dim in stage.dims}
                assert names <= dims_of([stage.operation]), stage.operation
                compared += 1
    assert compared > 60
