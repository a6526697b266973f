"""The public names: few, pinned, declared once, and each found where it is said to be."""

import subprocess
import sys
from pathlib import Path

import mixerscope
from mixerscope.registry import ARCHITECTURES, OBJECTIVES, STAGES, TASKS
from mixerscope.spec import LayerSpec, ModelSpec, RunSpec, TrainSpec

NAMES = """
AR ATR Batch Cell Done Edge EffectTable Frames Impossible InitRule JsonArtifact MQAR Machine Mechanism Mixer Model Mover
NGram Objective PairSettings Pairs Proof Reads Rules Result RunResult RunSpec Runs SelectiveCopy Site Stage Sweep Task
Trained UNSCORED Verdict
accuracy_by_width activations adapt adapt_hf attribution_patching boundary_sites build_model check_mixer check_model
check_task collect compare edit effect_table emergence_of export_run false_names heat_map interchange
interchange_cohort judge learning_curves load_export load_run load_runs logit_lens make_pairs over_seeds paper_figure
patch_paths plan_grid preset prove record redo register run run_cohort run_sweep stacked_operator train_cohort use
verdict verdicts write_collected write_report
"""


def test_public_names_are_these():
    assert sorted(mixerscope.__all__) == sorted(NAMES.split())


def test_every_public_name_can_be_had():
    for name in mixerscope.__all__:
        found = getattr(mixerscope, name)
        assert getattr(found, "__name__", name) == name


def test_completion_shows_them_and_nothing_is_imported_for_it():
    code = "import sys, mixerscope; names = dir(mixerscope); assert 'torch' not in sys.modules; print(*names)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert {*NAMES.split(), "__version__"} == {*said.split()}


def test_every_public_name_has_a_description():
    for name in mixerscope.__all__:
        found = getattr(mixerscope, name)
        if callable(found):
            own = found.__doc__ or ""
            assert len(own.split()) >= 3, name
            assert not own.startswith(f"{name}("), f"{name} has the docstring that dataclasses make up"


def test_types_travel_with_the_package():
    assert (Path(mixerscope.__file__).parent / "py.typed").is_file()


def test_every_field_of_a_spec_has_a_description():
    specs: list[type] = [RunSpec, ModelSpec, TrainSpec, LayerSpec]
    for registry in (TASKS, STAGES, ARCHITECTURES, OBJECTIVES):
        # Ours alone: other tests register components of their own.
        specs += [registry.load(entry.name) for entry in registry.entries() if entry.origin == "mixerscope"]
    for spec in [*specs, mixerscope.PairSettings, mixerscope.Rules, mixerscope.Sweep]:
        for name, field in spec.model_fields.items():
            assert field.description, f"{spec.__name__}.{name}"
