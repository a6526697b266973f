"""What becomes of answers when another state is written, as rows."""

from mixerscope.artifacts import Interchanged, Interchanges


def test_a_row_says_of_how_many_answers_its_share_is():
    def rows(**kept):
        cell = Interchanged("stream", "shift", None, None, 0.5, (1.0, None, 0.25), **kept)
        return [row["n"] for row in Interchanges(3, 4, 16, 1.0, (cell,)).rows()]

    assert rows(told=(16, 0, 8)) == [16, 0, 8]
    assert rows() == [None] * 3, "results of older versions did not keep it"
