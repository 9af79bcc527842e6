"""The numbers of the figures are within their bounds, and all figures can be drawn."""

import json
import re
import shutil
import sys
from itertools import product
from math import hypot, inf, nan
from pathlib import Path
from xml.etree import ElementTree

import pytest

from make_figures import main
from paper_figures.claim import Claim, Number, ShippedMaker, load_all
from paper_figures.digits import estimate_text
from paper_figures.rows import load as load_rows
from paper_figures.shipped import FOLDER
from paper_figures.shipped import load as load_times
from paper_figures.verdict import (
    BY_ARITHMETIC,
    CAUSES,
    NOT,
    PARTLY,
    REPRODUCED,
    ROLES,
    Statement,
    overall,
)

FIGURES = Path(__file__).parents[2] / "figures"
CLAIMS = load_all(FIGURES)
FROM_ROWS = [claim for claim in CLAIMS if claim.rows]
#: Claims whose numbers are equal on all machines.
STEADY = [claim for claim in CLAIMS if claim.rows or not claim.measured]


def bench(xor_cores: float) -> str:
    def code(name: str, cores: float) -> dict[str, object]:
        rows = [{"work": "read", "kernel": None, "cores_for_400_gbit": 1.0}]
        rows += [{"work": "encode", "kernel": "scalar", "cores_for_400_gbit": cores}]
        return {"code": name, "rows": rows}

    codes = [code("ec-xor:32,8", xor_cores), code("ec-mds:32,8", 8.0)]
    result = {"cpu": "any", "chunk_bytes": 65536, "threads": 1, "rounds": 5, "codes": codes}
    return json.dumps({"command": "codes bench", "exit_code": 0, "error": None, "result": result})


def test_all_claims_are_there() -> None:
    lowar = ["L3", "L9", "L10", "L11", "L12", "L13", "LV"]
    netrt = ["N6", "N7", "N8", "N9", "N10", "NT2"]
    optinic = ["O7", "OA", "OL", "OT3", "OT4", "OT5"]
    sdr = ["S2", "S3", "S9", "S10", "S11", "S12", "S13", "S15", "SM", "SV"]
    simulated = ["C2", *lowar, *netrt, "O2", "O3", "O3V", "O4", "O5", "O6"]
    assert [claim.name for claim in CLAIMS] == [*simulated, *optinic, *sdr]
    assert [claim.name for claim in FROM_ROWS] == [*simulated, *optinic, "S2", "S15", "SV"]


@pytest.mark.parametrize("claim", STEADY, ids=lambda claim: claim.name)
def test_numbers(claim: Claim) -> None:
    ours = claim.maker.numbers(claim.settings)
    kept = json.loads((claim.folder / "results.json").read_text())["numbers"]
    assert ours == pytest.approx(kept, rel=1e-6), "run make -C lab figures"
    if isinstance(claim.maker, ShippedMaker):
        shipped = claim.maker.shipped(claim.settings, claim.times)
        results = json.loads((claim.folder / "results.json").read_text())
        found = {name: of.value for name, of in shipped.items()}
        assert found == pytest.approx(results["shipped"], rel=1e-6), "run make -C lab figures"
        texts = {name: estimate_text(of.value, of.half) for name, of in shipped.items()}
        assert texts == results["shipped_shown"]
        assert set(shipped) <= set(ours)
    verdicts = claim.verdicts(ours)
    kept = json.loads((claim.folder / "results.json").read_text())
    assert (kept["verdict"], kept["verdicts"]) == (claim.verdict(verdicts), verdicts)
    assert kept["shown"] == claim.shown(ours)
    for number in claim.expected:
        assert number.holds(ours[number.name]), (number.name, ours[number.name])
        # Each difference has a cause and a reason, and what is reproduced has no cause.
        differs = verdicts.get(number.name, REPRODUCED) not in (REPRODUCED, BY_ARITHMETIC)
        assert differs == bool(number.cause), (number.name, verdicts.get(number.name))
        assert not number.cause or (number.cause in CAUSES and number.why), number.name
        assert not number.role or (number.role in ROLES and number.statement), number.name


@pytest.mark.parametrize(
    ("statement", "ours", "error", "verdict"),
    [
        (Statement(2, 2), 2.2, 0, REPRODUCED),
        (Statement(2, 2), 2.3, 0, PARTLY),
        # A tolerance and the interval of two standard errors do not add up: a value has the tolerance alone,
        (Statement(2, 2), 2.3, 0.05, PARTLY),
        (Statement(2, 2), 2.3, 1, PARTLY),
        (Statement(1.6, 2), 2.3, 0.2, PARTLY),
        # and a bound has the interval alone, unless the claim states a tolerance for it.
        (Statement(-inf, 1), 1.2, 0.1, REPRODUCED),
        (Statement(-inf, 1), 1.25, 0.1, NOT),
        (Statement(-inf, 1, 0.1), 1.2, 0.1, NOT),
        (Statement(2, 2, 0.01), 2.1, 0, PARTLY),
        (Statement(2, 2), 4.1, 0, NOT),
        (Statement(2, 2), -2, 0, NOT),
        (Statement(1.6, 2), 1.5, 0, REPRODUCED),
        (Statement(1.6, 2), 1, 0, PARTLY),
        # A bound holds or it does not.
        (Statement(-inf, 1), 1.01, 0, NOT),
        (Statement(-inf, 1), -3, 0, REPRODUCED),
        (Statement(5, inf), 5, 0, REPRODUCED),
        # The tolerance of a 0 is in the unit of the number.
        (Statement(0, 0), 0.01, 0, NOT),
        (Statement(0, 0, 0.2), -0.2, 0, REPRODUCED),
    ],
)
def test_verdicts(statement: Statement, ours: float, error: float, verdict: str) -> None:
    assert statement.verdict(ours, error) == verdict


def test_numbers_need_no_other_rows() -> None:
    """The tables show rows alone, so neither a name nor a reason may point to another row."""
    for claim in CLAIMS:
        says = [number.says for number in claim.expected]
        assert len(set(says)) == len(says), claim.name
        for number in claim.expected:
            for text in (number.says, number.why):
                pointer = re.search(r"^(the same|as) |\b(as above|rows? below|next rows?)\b", text, re.I)
                assert pointer is None, (claim.name, number.name, text)


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (6.5479, 0, "6.55"),
        (6.5479, nan, "6.55"),
        (6.5479, 1.04, "6.5 ± 1.0"),
        (6.5479, 0.31, "6.5 ± 0.3"),
        (6.5479, 0.0031, "6.55"),
        (1234.5, 140, "1230 ± 140"),
        (0.0001, 0.00003, "0.0001"),
    ],
)
def test_numbers_have_the_digits_that_their_intervals_carry(value: float, half: float, text: str) -> None:
    assert estimate_text(value, half) == text


def test_a_claim_is_as_its_numbers() -> None:
    assert overall([REPRODUCED, REPRODUCED]) == REPRODUCED
    assert overall([REPRODUCED, NOT]) == overall([REPRODUCED, PARTLY]) == PARTLY
    # A claim of which no number is reproduced is not.
    assert overall([NOT, NOT]) == overall([PARTLY, NOT]) == overall([PARTLY]) == NOT
    assert overall([]) == ""


@pytest.mark.parametrize(
    ("roles", "verdict"),
    [
        # Each number by its role, with 1 where 1 is stated, except for the last one, which misses it.
        (["", "", ""], PARTLY),
        (["", "", "variant"], REPRODUCED),
        (["baseline", "variant", ""], NOT),
        # What follows by arithmetic does not make a claim reproduced, nor partly reproduced.
        (["arithmetic", "arithmetic", ""], NOT),
        (["arithmetic", "", "arithmetic"], REPRODUCED),
        (["arithmetic", "arithmetic", "arithmetic"], BY_ARITHMETIC),
        (["arithmetic", "variant", "variant"], BY_ARITHMETIC),
        (["variant", "variant", "variant"], ""),
    ],
)
def test_numbers_with_a_role_do_not_decide(roles: list[str], verdict: str) -> None:
    numbers = tuple(Number(str(place), "", "", 0, 9, paper=1, role=role) for place, role in enumerate(roles))
    claim = Claim(Path("S9"), "", "", "", {}, numbers)
    verdicts = claim.verdicts({"0": 1.0, "1": 1.0, "2": 1.5})
    assert verdicts["2"] == PARTLY
    assert [verdicts[name] == BY_ARITHMETIC for name in "01"] == [of == "arithmetic" for of in roles[:2]]
    assert claim.verdict(verdicts) == verdict


def test_all_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "figures"
    for claim in CLAIMS:
        (folder / claim.name).mkdir(parents=True)
        shutil.copy(claim.folder / "claim.toml", folder / claim.name)
    # The curves of S13 take a minute to compute. Fewer of them show that they can be drawn.
    rings = folder / "S13/claim.toml"
    text = rings.read_text()
    fewer = text.replace("sites = [2, 4, 6, 8]", "sites = [4]").replace(
        "[8388608, 134217728, 1073741824]", "[8388608]"
    )
    assert len(fewer) < len(text) - 20
    rings.write_text(fewer)
    for results in [FOLDER, "boxes", "collectives", "inference", "optinic", "paths", "training", "vm"]:
        shutil.copytree(FIGURES / results, folder / results)
    (tmp_path / "codes.json").write_text(bench(4.0))
    monkeypatch.setenv("FARWRITE_CODES_BENCH", str(tmp_path / "codes.json"))
    monkeypatch.setattr(sys, "argv", ["figures", str(folder), "--page", str(tmp_path / "out/page.html")])
    assert main() == 0
    page = (tmp_path / "out/page.html").read_text()
    assert re.findall(r'<section id="(\w+)"', page) == [claim.name for claim in CLAIMS]
    assert "out of bounds" not in page
    with_shipped = [claim for claim in CLAIMS if isinstance(claim.maker, ShippedMaker)]
    assert [claim.name for claim in with_shipped] == ["S3", "S9", "S10", "S12", "S13", "SM"]
    assert page.count("shipped protocols in virtual time, ") == len(with_shipped)
    assert page.count("<th>shipped protocol</th>") == len(with_shipped)
    assert page.count("Measured: NICs and boxes in virtual time; ") == 12
    assert page.count("Measured: NICs and endpoints in virtual time; ") == 5
    assert page.count("Measured: ") == len(FROM_ROWS) + len(with_shipped) + 1
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for claim in CLAIMS:
        ElementTree.parse(folder / claim.name / "plot.svg")
        plot = (folder / claim.name / "plot.svg").read_text()
        # What the paper states is beside our numbers, and at its place in the plot where it has one.
        stated = [number for number in claim.expected if number.statement]
        beside = re.findall(r'id="beside-([^"]*)"', plot)
        assert beside == [number.name for number in stated], claim.name
        assert bool(stated) != ("The paper states no number" in plot), claim.name
        placed = set(re.findall(r'id="place-of-([^"]*)"', plot))
        assert placed == {number.name for number in stated if number.at}, claim.name
        if not claim.measured:
            assert (folder / claim.name / "plot.svg").stat().st_size < 300_000


def test_shipped_protocols_are_found_by_their_place(tmp_path: Path) -> None:
    head = "scheme,bytes,rate_bps,rtt_s,loss_packet,burst,mtu,samples,seed,mean_s,p99_s,"
    head += "error_s,p999_s,p999_low_s,p999_high_s,model_s,model_p999_s\n"
    row = '"{}",131072,406250000000,0.025,0.001,0,4096,{},1,{},{},0.001,,,,0.05,\n'
    (tmp_path / "a.csv").write_text(head + row.format("sr-rto", 1000, 0.075, 0.1))
    (tmp_path / "b.csv").write_text(head + row.format("ec-mds:32,8", 60, 0.025, ""))
    times = load_times(tmp_path)
    place = (2.0**17, 400e9, 25e-3, 1e-3)
    found = times.find("sr-rto", *place)
    assert found is not None
    assert (found.messages, found.p99_s) == (1000, 0.1)
    assert times.find("sr-nack", *place) is None
    ((found_at, ratio),) = times.ratios("sr-rto", "ec-mds:32,8", 400e9, 25e-3).items()
    assert found_at == pytest.approx((2.0**17, 1e-3))
    assert ratio.value == pytest.approx(3.0)
    # Two standard errors of 1 ms of 75 ms, and of 25 ms.
    assert ratio.below == ratio.above == pytest.approx(3 * hypot(2 / 75, 2 / 25))
    # One of the two schemes has too few messages for a quantile, so there is no ratio.
    assert times.ratios("sr-rto", "ec-mds:32,8", 400e9, 25e-3, kind="p99_s") == {}
    assert times.messages == "60 to 1000"
    assert load_times(tmp_path / "none").cells == ()
    # All-reduces of rings are loaded separately.
    head = head.replace("bytes,", "bytes,sites,")
    rings = row.replace("131072,", "131072,4,").format("sr-rto", 20, 0.3, "")
    (tmp_path / "c.csv").write_text(
        head + rings + row.replace("131072,", "131072,,").format("sr-nack", 9, 0.1, "")
    )
    assert len(load_times(tmp_path).cells) == 3
    (ring,) = load_times(tmp_path, rings=True).cells
    assert (ring.sites, ring.messages) == (4, 20)


ROWS_HEAD = "figure,panel,series,x,measure,value,conditions\n"
ROWS_ROW = 'L9,"40 ms","Go-Back-N",{},goodput_gbps,{},"a run of {} s"\n'


def test_trainings_lack_what_the_all_reduces_lacked() -> None:
    (claim,) = (claim for claim in CLAIMS if claim.name == "O3V")
    rows = load_rows(FIGURES / claim.rows, *claim.figures)
    settings = claim.settings
    for panel, series in product(settings["panels"].values(), settings["optinic"].values()):
        missing = rows.value(panel, series, "missing_percent", settings["loss"])
        masked = rows.value(panel, series, "masked_percent", 0)
        # Endpoints may have changed between the two commands.
        assert masked == pytest.approx(missing, rel=0.05), "run make -C lab figures-steps"


def test_rows_are_found_by_their_place(tmp_path: Path) -> None:
    other = 'N8,"2 MiB","IRN",15,mean_us,1,"5 seeds"\n'
    (tmp_path / "a.csv").write_text(ROWS_HEAD + ROWS_ROW.format(0.001, 2.5, 1) + other)
    (tmp_path / "b.csv").write_text(ROWS_HEAD + ROWS_ROW.format(0, 9.5, 2))
    rows = load_rows(tmp_path, "L9")
    x, goodput = rows.line("40 ms", "Go-Back-N", "goodput_gbps")
    assert (x.tolist(), goodput.tolist()) == ([0.0, 0.001], [9.5, 2.5])
    assert rows.value("40 ms", "Go-Back-N", "goodput_gbps", 1e-3) == 2.5
    assert rows.series("40 ms") == ["Go-Back-N"]
    assert rows.conditions == "a run of 1 s; a run of 2 s"
    with pytest.raises(KeyError, match="L9: no row has panel, series and measure .*IRN"):
        rows.line("40 ms", "IRN", "goodput_gbps")
    with pytest.raises(KeyError, match="L9: 0 rows of 40 ms, Go-Back-N, goodput_gbps have x = 0.01"):
        rows.value("40 ms", "Go-Back-N", "goodput_gbps", 0.01)
    with pytest.raises(ValueError, match=f"has no rows of L10: make figures-{tmp_path.name} writes them"):
        load_rows(tmp_path, "L10")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROWS_HEAD.replace(",measure", "") + "L9,40 ms,IRN,0,1,none\n", "a.csv has no column measure"),
        (ROWS_HEAD + ROWS_ROW.format("", 1, 1), "a.csv:2: column x is empty"),
        (ROWS_HEAD + ROWS_ROW.format(0, "fast", 1), "a.csv:2: fast in column value is not a finite number"),
        (ROWS_HEAD + ROWS_ROW.format(0, "NaN", 1), "a.csv:2: NaN in column value is not a finite number"),
        (ROWS_HEAD + "L9,40 ms\n", "a.csv:2: column series is empty"),
        ("", "a.csv has no column figure"),
    ],
)
def test_broken_rows_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_rows(tmp_path, "L9")


def test_what_is_out_of_bounds_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figures/S11").mkdir(parents=True)
    shutil.copy(FIGURES / "S11/claim.toml", tmp_path / "figures/S11")
    monkeypatch.setattr(
        sys, "argv", ["figures", str(tmp_path / "figures"), "--page", str(tmp_path / "page.html")]
    )
    assert main() == 0
    assert "S11: left out" in capsys.readouterr().err
    strict = (FIGURES / "S11/claim.toml").read_text().replace("high = inf", "high = 9")
    (tmp_path / "figures/S11/claim.toml").write_text(strict)
    (tmp_path / "codes.json").write_text(bench(1000.0))
    monkeypatch.setenv("FARWRITE_CODES_BENCH", str(tmp_path / "codes.json"))
    assert main() == 1
    assert "S11: xor_cores = 1000, not within" in capsys.readouterr().out
    assert "out of bounds" in (tmp_path / "page.html").read_text()
