"""Three seeds of one architecture, trained together: a verdict of each, and what they say together."""

import mixerscope as ms

spec = ms.RunSpec.model_validate(
    {
        "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6, "num_queries": 2},
        "model": {"architecture": "based", "width": 32, "init": "small_model"},
        "train": {"steps": 300, "batch_size": 64, "documents": 19_200, "lr": 5e-3, "stop_at_accuracy": 0.98},
        "stages": {"patch": {"documents": 64, "avoid_present": True}, "judge": {}},
    }
)
pairs = ms.make_pairs(spec.task, spec.stages["patch"], spec.data_seed)
verdicts = []
for member in ms.train_cohort([spec.changed(seed=seed) for seed in range(3)]):
    model = ms.build_model(spec.model, spec.task.vocab_size, seed=member.spec.seed)
    model.load_state_dict(member.weights)
    verdicts.append(ms.verdict(ms.interchange(model, pairs), model))
    print(member.spec.seed, verdicts[-1].sentence())
print(ms.over_seeds(verdicts).sentence())
