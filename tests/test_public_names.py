"""The public names: few, pinned, and each found where it is said to be."""

import mixerscope

NAMES = """
AR ATR Batch Cell Edge InterventionSpec MQAR Mixer Model NGram RunSpec SelectiveCopy Site Sweep Task
activations adapt attribution_patching build_model check_model edit interchange interchange_cohort load_run logit_lens
make_pairs over_seeds patch_paths plan_grid record register run run_cohort train_cohort verdict write_report
"""


def test_public_names_are_these():
    assert sorted(mixerscope.__all__) == sorted(NAMES.split())


def test_every_public_name_can_be_had():
    for name in mixerscope.__all__:
        assert getattr(mixerscope, name).__name__ == name
