"""Prompt sets: files and their faults, the packaged sets, and what an agent is shown."""

import pytest

from lm_eval_latentmas.agents import joined_messages, load_prompts

MINIMAL = "agents:\n  - {name: planner, prompt: 'Plan {question}'}\n  - {name: judger, prompt: 'Answer {question}'}\n"


def written(tmp_path, text):
    path = tmp_path / "set.yaml"
    path.write_text(text)
    return str(path)


def shown(prompts, name, question="Why?", **about):
    agent = next(agent for agent in prompts.agents if agent.name == name)
    return prompts.turns(agent, question, **({"task": "demo"} | about))[-1]["content"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected a mapping"),
        ("agents: [", "not YAML"),
        ("agents: []", "at least one agent"),
        ("agent: []", "unknown key 'agent'; did you mean 'agents'?"),
        ("agents: [{name: a}]", "agent 1 needs 'name' and 'prompt'"),
        ("agents: [{name: a, prompt: hello}]", "its prompt lacks {question}"),
        ("agents: [{name: a, prompt: '{question}', text: '{messages}'}]", "its text lacks {question}"),
        ("agents: [{name: a, prompt: '{question} {messages}'}]", "{messages} belongs in its 'text'"),
        ("agents: [{name: a, prompt: '{question}', txt: b}]", "unknown key 'txt'; did you mean 'text'?"),
        (MINIMAL + "topology: parallel", "topology 'parallel': allowed are sequential, hierarchical"),
        (MINIMAL + "tasks: {'*': number}", "answer style 'number' is used"),
        (MINIMAL + "answer_styles: {free: '{letter}'}", "has the field ['letter']"),
        ("include: other\n" + MINIMAL, "include takes default, hierarchical, not 'other'"),
    ],
)
def test_a_faulty_file_is_refused_with_its_name_and_field(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match="prompts=") as error:
        load_prompts(path)
    assert message in str(error.value)
    assert path in str(error.value)


def test_a_name_is_a_packaged_set_and_an_unknown_one_lists_them():
    assert load_prompts("default") == load_prompts()
    assert load_prompts("hierarchical").side_by_side
    with pytest.raises(ValueError, match="give a YAML file, or one of default, hierarchical"):
        load_prompts("hierarchicl")


def test_a_file_may_take_what_it_lacks_from_a_packaged_set(tmp_path):
    prompts = load_prompts(written(tmp_path, "include: default\n" + MINIMAL))
    assert [agent.name for agent in prompts.agents] == ["planner", "judger"]
    assert prompts.answer_styles == load_prompts().answer_styles


@pytest.mark.parametrize("name", ["default", "hierarchical"])
@pytest.mark.parametrize("scored", [False, True])
def test_the_packaged_sets_leave_no_field_open(name, scored):
    prompts = load_prompts(name)
    prompts.check_text()
    for messages in (None, "Planner:\nCount."):
        for agent in prompts.agents:
            text = shown(prompts, agent.name, task="gsm8k", scored=scored, messages=messages)
            assert "Why?" in text
            assert "{" not in text.replace("\\boxed{}", "")
            if agent == prompts.judger:
                assert ("boxed" in text) != scored
                assert ("latent" in text) == (messages is None)


def test_a_question_is_shown_as_it_is(tmp_path):
    question = "What does {answer_form} mean, {messages} and {question}?"
    prompts = load_prompts()
    assert question in shown(prompts, "judger", question, messages="{question}")


def test_a_set_without_the_style_continue_leaves_the_form_out(tmp_path):
    text = MINIMAL.replace("Answer {question}", "Answer {question} {answer_form}") + "answer_styles: {free: Say it.}\n"
    prompts = load_prompts(written(tmp_path, text))
    assert shown(prompts, "judger") == "Answer Why? Say it."
    assert shown(prompts, "judger", scored=True) == "Answer Why? "


def test_who_hears_whom_follows_from_the_topology():
    def names(prompts):
        return [[agent.name for agent in prompts.heard_by(index)] for index in range(len(prompts.agents))]

    assert names(load_prompts()) == [[], ["planner"], ["planner", "critic"], ["planner", "critic", "refiner"]]
    assert names(load_prompts("hierarchical")) == [[], [], [], ["mathematician", "scientist", "programmer"]]


def test_text_needs_a_place_for_messages_in_every_agent_that_hears_others(tmp_path):
    prompts = load_prompts(written(tmp_path, MINIMAL))
    with pytest.raises(ValueError, match="agent 'judger' has no place for them"):
        prompts.check_text()


def test_messages_carry_their_speakers_names():
    planner, critic, *_ = load_prompts().agents
    assert joined_messages([(planner, " Count. "), (critic, "Fine.")]) == "Planner:\nCount.\n\nCritic:\nFine."


def test_everything_that_reaches_the_model_is_in_the_digest(tmp_path):
    base = load_prompts(written(tmp_path, MINIMAL)).digest
    changed = [
        MINIMAL + "topology: hierarchical\n",
        MINIMAL + "system: Hello.\n",
        MINIMAL.replace("Plan {question}", "Plan {question}!"),
        MINIMAL.replace("'Answer {question}'", "'Answer {question}', text: '{question} {messages}'"),
        MINIMAL + "answer_styles: {free: Hm.}\n",
    ]
    assert len({base, *(load_prompts(written(tmp_path, text)).digest for text in changed)}) == 1 + len(changed)
