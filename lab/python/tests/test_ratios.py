"""The ratios that the programs beside gloo print."""

from math import inf

from ratios import ratios


def test_each_backend_is_compared_with_the_bases_that_ran() -> None:
    head, *lines = ratios("time", {"gbn": 6.0, "exact-ec": 3.0, "optinic": 2.0, "gloo": inf})
    assert head.split() == ["time", "of", "gloo", "gbn", "exact-ec,", "over", "that", "of", "the", "row"]
    assert [line.split() for line in lines] == [
        ["gbn", "unknown", "1.00", "0.50"],
        ["exact-ec", "unknown", "2.00", "1.00"],
        ["optinic", "unknown", "3.00", "1.50"],
        ["gloo", "unknown", "unknown", "unknown"],
    ]
    # A number ends below the end of the name of its base.
    assert lines[0].index("1.00") + 4 == head.index("gbn") + 3


def test_without_a_base_or_a_second_backend_there_is_no_table() -> None:
    assert list(ratios("time", {"exact": 1.0, "bounded": 2.0})) == []
    assert list(ratios("time", {"gloo": 1.0})) == []
