"""Several pipelines in one launch, one after the other: each is served, and what cannot be is refused at once."""

import pytest
from rings import processes

from lm_eval_latentmas.pipeline.chain import PipelineChain
from lm_eval_latentmas.pipeline.launched import check_no_pipeline, launched
from lm_eval_latentmas.pipeline.watch import PipelineError

NAMES = ["process 0 (judger)", "process 1 (planner)"]


def first_arguments(rank):
    return {"pretrained": f"folder{rank}", "kv_budget": 8, "svd": "exact", "device": f"cuda:{rank}"}


def serving(arguments):
    """What a process other than 0 is given, model after model."""
    given = []
    while arguments is not None:
        given.append(arguments)
        ring = launched().join(NAMES, 20, arguments)
        chain = PipelineChain.__new__(PipelineChain)
        chain._ring = ring
        chain.serve()
        arguments = launched().next_arguments()
    return given


def refused(action):
    with pytest.raises(ValueError, match="pipeline") as error:
        action()
    return str(error.value)


def twice(rank):
    if rank:
        return serving(first_arguments(rank))
    check_no_pipeline()
    ring = launched().join(NAMES, 20, first_arguments(0))
    other = first_arguments(0) | {"kv_budget": 4, "chat_template_args": {"enable_thinking": False}}
    del other["svd"]
    told = [refused(lambda: launched().join(NAMES, 20, other)), refused(check_no_pipeline)]
    ring.end()
    launched().join(NAMES, 20, other).end()
    launched()._dismiss()  # as at exit, which a process of a test does not reach
    return told


def test_the_other_processes_make_every_model_with_what_changed_of_its_arguments(tmp_path):
    (kind, told), served = processes(2, twice, tmp_path)
    changed = {"pretrained": "folder1", "kv_budget": 4, "device": "cuda:1"}
    changed["chat_template_args"] = {"enable_thinking": False}
    assert served == ("returned", [first_arguments(1), changed])
    assert kind == "returned"
    assert "still serve an earlier model of this launch; let go of it first (del)" in told[0]
    assert told[1].startswith("pipeline=False: the other processes of this launch serve the pipeline of an earlier")


def failed(rank):
    if rank:
        return serving(first_arguments(rank))
    ring = launched().join(NAMES, 20, first_arguments(0))
    ring.watch.fail(KeyError("a mistake"))
    return refused(lambda: launched().join(NAMES, 20, first_arguments(0)))


def test_after_a_pipeline_that_failed_no_other_is_waited_for(tmp_path):
    (kind, told), other = processes(2, failed, tmp_path, patience=20)
    assert kind == "returned"
    assert "ended with an earlier model of this launch (process 0 (judger) failed: KeyError: 'a mistake')" in told
    assert other == ("raised", "PipelineError: pipeline: process 0 (judger) failed: KeyError: 'a mistake'")


def leaving(rank):
    """Process 0 is gone without a word after its first model."""
    if rank:
        with pytest.raises(PipelineError) as error:
            serving(first_arguments(rank))
        return str(error.value)
    launched().join(NAMES, 20, first_arguments(0)).end()
    return None


def test_processes_that_wait_for_a_model_notice_that_process_0_is_gone(tmp_path):
    _, (kind, told) = processes(2, leaving, tmp_path, patience=20)
    assert (kind, told) == ("returned", "pipeline: process 0 (judger) is gone, and made no other model")
