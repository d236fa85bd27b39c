"""What options offer is what there is."""

from tilewright.network.fusion.search import SEARCHES
from tilewright.system import choices


def test_searches_are_those_that_there_are() -> None:
    assert tuple(SEARCHES) == choices.FUSION_SEARCHES
