"""Compares the NIC budget model with the papers' tables."""

from collections.abc import Callable

import pytest

from farwrite.model import nic


def test_rows_that_do_not_follow_are_these() -> None:
    assert {f"{row.table}: {row.name}" for row in nic.disagreements()} == {
        "OptiNIC 4: IRN: queue pairs",
        "OptiNIC 4: SRNIC: queue pairs",
        "OptiNIC 4: UCCL: cluster size",
        "OptiNIC 5: BRAM saved beside IRN",
        "Celeris I: IRN: queue pairs",
        "Celeris I: SRNIC: queue pairs",
        "Celeris II: failures an hour and bit",
        "LoWAR I: reordering buffer",
    }


def test_queue_pairs_that_fit_4_mib() -> None:
    expected = {407: 10_305, 596: 7_037, 242: 17_331, 210: 19_972, 350: 11_983, 52: 80_659}
    assert {state: nic.queue_pairs(state) for state in expected} == expected
    assert nic.queue_pairs(100, 99) == 0


def test_state_is_the_sum_of_its_fields() -> None:
    assert nic.state_bytes("Celeris") == 52
    assert nic.state_bytes("NetRT") == 23.25
    with pytest.raises(ValueError, match="'RoCE'.*Celeris, NetRT"):
        nic.state_bytes("RoCE")


def test_clusters() -> None:
    assert nic.cluster_size(80_000) == 40_000
    assert nic.cluster_size(10_000, 256) == 39


def test_the_lines_of_two_rows_predict_the_others() -> None:
    # Celeris II and its formulas: RoCE and Celeris are the ends, IRN and SRNIC follow.
    block_ram = [nic.synthesis(state)["BRAM"] for state in (407, 52, 596, 210)]
    assert block_ram == pytest.approx([1450.5, 529.5, 1941.5, 939.5], rel=5e-4)
    assert nic.synthesis(0)["BRAM"] == pytest.approx(394.6, abs=0.05)
    hours = [nic.mtbf_hours(bram) for bram in block_ram]
    assert [round(of, 1) for of in hours] == [42.8, 80.5, 34.3, 57.8]
    predicted = [row for row in nic.tables() if row.formula.startswith("lines")]
    assert len(predicted) == 5 * 6
    for row in predicted:
        assert row.computed == pytest.approx(row.quoted, rel=0.045 if "BRAM" in row.name else 0.006), row


def test_a_reorder_buffer_is_in_block_ram() -> None:
    # Falcon in OptiNIC 5: 1.6K block RAMs and 40.5 hours.
    without, falcon = nic.synthesis(350), nic.synthesis(350, 1_200_000)
    assert falcon["BRAM"] - without["BRAM"] == pytest.approx(1_200_000 / 4608)
    assert falcon == without | {"BRAM": falcon["BRAM"]}
    assert round(nic.mtbf_hours(falcon["BRAM"]), 1) == 40.5


def test_the_stated_failure_rate_is_hundreds_of_times_the_implied_one() -> None:
    assert 1e-11 / nic.implied_failures_per_bit() == pytest.approx(465, rel=0.01)


def test_every_row_has_a_formula_or_is_quoted() -> None:
    rows = nic.tables()
    assert len({(row.table, row.name) for row in rows}) == len(rows)
    for row in rows:
        assert (row.computed is None) == (row.formula == "quoted from the paper"), row
        assert (row.follows is None) == (row.computed is None), row


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nic.queue_pairs(0), "state = 0"),
        (lambda: nic.queue_pairs(52, -1), "sram = -1"),
        (lambda: nic.queue_pairs(5e-324), "state = 5e-324"),
        (lambda: nic.cluster_size(float("nan")), "pairs = nan"),
        (lambda: nic.cluster_size(float("inf")), "pairs = inf"),
        (lambda: nic.mtbf_hours(float("nan")), "bram = nan"),
        (lambda: nic.synthesis(-1), "state = -1"),
        (lambda: nic.synthesis(52, float("inf")), "buffer_bytes = inf"),
        (lambda: nic.implied_failures_per_bit(0), "nodes = 0"),
        (lambda: nic.cluster_size(-1), "pairs = -1"),
        (lambda: nic.cluster_size(10, 0), "connections = 0"),
        (lambda: nic.mtbf_hours(-1), "bram = -1"),
    ],
)
def test_refusals(call: Callable[[], float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
