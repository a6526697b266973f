"""What patching asks of a spec before anything is trained."""

import pytest

from mixerscope.errors import UserError
from mixerscope.interventions import pairs
from mixerscope.spec import RunSpec
from mixerscope.stages import patch

AR = {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4}


def spec(**settings: object) -> RunSpec:
    stages = {"patch": settings, "prove": {}}
    return RunSpec.model_validate({"task": AR, "model": {"architecture": "attention"}, "stages": stages})


def test_a_million_documents_are_not_made_to_see_whether_they_can_be(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    sample = pairs.make_pairs

    def counted(task, settings, *rest):
        made.append(settings.documents)
        return sample(task, settings, *rest)

    monkeypatch.setattr(patch, "make_pairs", counted)
    many = spec(documents=10**6)
    for stage in many.stages.values():
        stage.check(many)
    assert sorted(made) == [1, patch.LOOKED_AT]


def test_a_place_outside_the_documents_is_refused_before_training():
    far = spec(documents=10**6, also_at=["query+9"])
    with pytest.raises(UserError, match=r"'query\+9' lies outside the document in 16384 of 16384"):
        far.stages["patch"].check(far)
