"""Results that are not there, or are of something else."""

import pytest

from mixerscope.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["figure", "fig3", "{empty}"], "there are no results below"),
        (["figure", "fig99", "{empty}"], "no figure named 'fig99'"),
        (["figure", "all", "{empty}"], "there are no results below"),
        (["reproduce", "claims", "--results", "{empty}"], "there are no results below"),
        (["reproduce", "page", "--results", "{empty}"], "there are no results below"),
        (["reproduce", "fig3", "--collect", "{empty}/none.pack"], "there are no results in"),
        (["reproduce", "fig3", "--collect", "{empty}"], "holds no finished runs"),
    ],
)
def test_missing_results_are_said_in_a_sentence(words, said, tmp_path, capsys):
    assert main([word.format(empty=tmp_path) for word in words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_table_needs_no_runs(tmp_path, capsys):
    assert main(["reproduce", "table-params", "--results", str(tmp_path)]) == 0
    assert "4a" not in capsys.readouterr().out
    assert (tmp_path / "table-params" / "figure.svg").is_file()
