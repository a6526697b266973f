"""What the paper's text prints, typed a second time in the order in which it is printed there."""

import json

import pytest

from mixerscope.experiments.paper.data import published_cells, published_of
from mixerscope.experiments.paper.sweeps import figure_names, load_figure

WIDTHS = (16, 32, 64, 128, 256)
FIGURE_3_PANELS = ("Original", "Corrupted key", "Restored @ key", "Restored @ value", "Restored @ query")
FIGURE_3 = """
Mamba 6.5 74.4 79.4 88.7 90.3 0.6 3.2 5.5 4.2 4.9 1.0 70.9 5.8 3.1 5.3 1.4 3.1 4.6 4.5 5.4 6.5 3.4 79.4 88.7 90.3
Hyena 0.1 0.1 2.6 12.7 29.9 0.1 0.1 0.7 1.5 1.5 0.1 0.1 0.6 1.6 0.9 0.1 0.1 0.4 1.3 1.6 0.1 0.1 2.6 12.7 29.9
H3 0.1 0.2 1.3 1.8 1.0 0.1 0.1 0.5 1.0 0.6 0.1 0.2 0.4 1.8 0.8 0.1 0.1 0.2 1.1 0.7 0.1 0.1 1.3 0.6 1.0
DeltaNet 1.1 66.7 85.3 55.5 84.8 0.1 0.8 1.2 0.6 1.3 1.0 0.8 1.2 0.5 1.1 0.1 1.1 1.6 0.9 0.5 0.1 66.7 85.3 55.5 84.7
Based 21.8 92.0 98.7 98.9 98.5 0.3 2.7 4.1 6.4 7.4 0.1 3.5 5.0 5.8 8.3 21.9 91.9 98.7 98.9 98.5 0.0 2.7 5.7 8.2 7.1
BaseConv 0.0 0.7 3.5 5.8 8.5 0.0 0.5 3.1 6.4 7.8 0.0 0.1 3.3 5.8 8.1 0.0 0.6 3.6 6.0 8.3 0.0 0.5 3.5 6.3 8.2
Attention 1.9 100 99.9 100 100 1.7 5.8 5.5 6.0 4.8 1.7 6.0 4.3 5.3 5.3 2.1 100.0 99.9 100.0 100.0 1.7 5.0 6.4 5.7 4.3
"""
FIGURE_5_PANELS = ("Original", "Corrupted", "Restored @ 0, value", "Restored @ 0, next key", "Restored @ 1, value")
FIGURE_5 = """
3e-02 0.5 - - - - 0.3 - - - - 0.3 - - - - 0.5 - - - - 0.2 - - - -
1e-02 4.2 75.4 80.6 85.7 0.0 0.7 2.9 4.7 5.4 0.0 0.2 4.4 3.0 4.4 0.0 4.2 3.2 80.1 86.0 0.0 1.2 71.5 6.3 6.3 0.0
3e-03 1.8 42.4 70.9 87.5 89.0 0.1 3.0 6.1 2.2 6.9 0.2 4.1 6.3 2.7 16.6 1.5 23.0 70.7 87.2 72.1 0.1 4.8 5.8 1.7 6.1
1e-03 0.1 10.5 53.2 57.2 92.8 0.1 1.2 4.2 3.5 7.2 0.1 0.7 2.3 3.9 5.9 0.1 0.6 44.7 56.4 92.6 0.1 1.5 6.0 3.1 8.5
3e-04 0.0 0.1 1.2 6.9 3.8 0.0 0.1 1.0 1.9 1.6 0.0 0.1 1.4 2.0 2.2 0.0 0.1 1.0 0.9 2.8 0.0 0.1 1.1 1.2 1.1
1e-04 0.0 0.0 0.0 0.2 0.1 0.0 0.0 0.0 0.2 0.1 0.0 0.0 0.0 0.2 0.1 0.0 0.0 0.0 0.2 0.1 0.0 0.0 0.0 0.2 0.1
3e-05 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0
"""
# Sentences of the text, in its order: figure, panel, row, width, percent.
PROSE = [
    *(("fig3", "Accuracy", "Attention", width, 100.0) for width in (32, 64, 128, 256)),  # 4.2
    ("fig3", "Accuracy", "Based", 128, 99.06),
    ("fig3", "Accuracy", "Mamba", 256, 91.25),
    ("fig8", "Accuracy", "none", 256, 93.4),  # 5.3
    ("fig7", "Accuracy", "Based", 256, 92.2),
    ("fig7", "Accuracy", "BaseConv", 256, 89.7),
    ("fig9", "AR", "Attention, learned", 256, 100.0),  # D.1
    ("fig9", "AR", "Attention, none", 256, 5.62),
    ("fig10", "Dev", "Attention", 256, 95.62),  # D.2
    ("fig10", "Test", "Attention", 256, 68.12),
    ("fig10", "Dev", "Mamba", 128, 65.0),
    ("fig11", "AR", "Mamba, 1", 256, 96.25),  # D.3
    ("fig11", "AR", "Mamba, 2", 256, 91.25),
    ("fig11", "AR", "Hyena, 1", 256, 31.56),
    ("fig11", "AR", "Hyena, 2", 256, 29.69),
    ("fig11", "ATR", "Attention, 2", 256, 96.25),
    ("fig11", "ATR", "Attention, 1", 256, 74.69),
    ("fig12", "1 layer", "Mamba", 256, 96.25),
    ("fig12", "2 layers", "Mamba", 256, 91.25),
    ("fig12", "1 layer", "Hyena", 256, 31.56),
    ("fig12", "2 layers", "Hyena", 256, 29.69),
]
PARAMETERS = """
16   154016  139568  136656  252480  163616  137920  138048
32   320320  285216  283040  517248  316096  282240  288384
64   689792  604160  604992  1083648 657920  590080  625920
128  1576192 1352640 1365632 2363904 1489024 1282560 1448448
256  3938816 3291968 3353856 5514240 3741056 2974720 3683328
"""


def printed(text: str, panels: tuple[str, ...]) -> dict[tuple[str, str, int], float]:
    found: dict[tuple[str, str, int], float] = {}
    for line in text.strip().splitlines():
        row, *numbers = line.split()
        places = [(panel, row, width) for panel in panels for width in WIDTHS]
        assert len(numbers) == len(places)
        found |= {place: float(number) for place, number in zip(places, numbers, strict=True) if number != "-"}
    return found


def said(figure: str) -> dict[tuple[str, str, int], float]:
    return {(panel, row, width): value for name, panel, row, width, value in PROSE if name == figure}


@pytest.mark.parametrize("figure", [name for name in figure_names() if name != "table-params"])
def test_published_numbers_are_those_of_the_text(figure):
    expected = said(figure)
    if figure == "fig3":
        expected |= printed(FIGURE_3, FIGURE_3_PANELS)
    if figure == "fig5":
        expected |= printed(FIGURE_5, FIGURE_5_PANELS)
    assert published_cells(load_figure(figure)) == expected


def test_published_parameters():
    found = published_cells(load_figure("table-params"))
    order = ("Attention", "BaseConv", "Based", "H3", "Hyena", "Mamba", "DeltaNet")
    for line in PARAMETERS.strip().splitlines():
        width, *counts = map(int, line.split())
        assert [found["AR", name, width] for name in order] == counts
    treecall = {"Attention": 166912, "BaseConv": 81280, "Based": 82112, "H3": 560768, "Hyena": 135040, "Mamba": 67200}
    assert {name: found["ATR", name, 64] for name in treecall} == treecall


@pytest.mark.parametrize("figure", figure_names())
def test_every_figure_says_where_its_numbers_come_from(figure):
    data = published_of(load_figure(figure))
    assert len(data["source"].split()) >= 3
    assert json.loads((load_figure(figure).folder / "published.json").read_text()) == data


def test_our_models_have_the_published_parameters_but_for_hyenas_unused_vectors():
    from mixerscope.experiments.table_params.figure import rows

    published = published_cells(load_figure("table-params"))
    for row in rows():
        unused = 2 * row["width"] if row["row"] == "Hyena" else 0
        assert row["value"] == published[row["panel"], row["row"], row["width"]] - unused, row
