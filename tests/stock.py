"""lm-eval's own task definitions on a few local rows: the definition is included, and only its data replaced."""

from __future__ import annotations

import json
from pathlib import Path

import lm_eval
import yaml

DEFINITIONS = Path(lm_eval.__file__).parent / "tasks"

_ARC = [
    {
        "id": "1",
        "question": "Which one is a planet?",
        "choices": {"text": ["Mars", "coal", "a fox"], "label": ["A", "B", "C"]},
        "answerKey": "A",
    },
    {
        "id": "2",
        "question": "What do bees make?",
        "choices": {"text": ["wool", "honey"], "label": ["1", "2"]},
        "answerKey": "2",
    },
    {
        "id": "3",
        "question": "What is ice?",
        "choices": {"text": ["frozen water", "a gas", "sand"], "label": ["A", "B", "C"]},
        "answerKey": "A",
    },
]
_GSM = [
    {"question": "Ann has 2 pens and buys 3. How many has she?", "answer": "She has 2 + 3 = 5.\n#### 5"},
    {"question": "A box holds 4 eggs. How many do 2 boxes hold?", "answer": "4 * 2 = 8.\n#### 8"},
    {"question": "Tom eats 1 of 6 pears. How many are left?", "answer": "6 - 1 = 5.\n#### 5"},
]
_HELLASWAG = [
    {
        "activity_label": "Cooking",
        "ctx_a": "A man cuts bread.",
        "ctx_b": "he",
        "endings": ["eats it.", "flies off.", "melts.", "sings."],
        "label": "0",
    },
    {
        "activity_label": "Rowing",
        "ctx_a": "Two women sit in a boat.",
        "ctx_b": "they",
        "endings": ["row.", "bake.", "sew.", "ski."],
        "label": "0",
    },
]
_MMLU = [
    {"question": "How many legs has a spider?", "choices": ["2", "4", "6", "8"], "answer": 3},
    {"question": "What is the capital of France?", "choices": ["Rome", "Paris", "Bonn", "Oslo"], "answer": 1},
]
_MEDQA = [
    {
        "sent1": "Which organ pumps blood?",
        "ending0": "Heart",
        "ending1": "Skin",
        "ending2": "Liver",
        "ending3": "Ear",
        "label": 0,
    },
    {
        "sent1": "What carries oxygen?",
        "ending0": "Bone",
        "ending1": "Red cells",
        "ending2": "Hair",
        "ending3": "Bile",
        "label": 1,
    },
]
_GPQA = [
    {
        "Question": "What is 2 squared?",
        "Correct Answer": "4",
        "Incorrect Answer 1": "2",
        "Incorrect Answer 2": "8",
        "Incorrect Answer 3": "0",
    },
]
_WINOGRANDE = [
    {
        "sentence": "The cup fell off the shelf because the _ was wet.",
        "option1": "cup",
        "option2": "shelf",
        "answer": "2",
    },
    {"sentence": "Ann thanked Eve, since _ had helped.", "option1": "Ann", "option2": "Eve", "answer": "2"},
]
_WIKITEXT = [
    {"page": " = A river = \n The river runs to the sea . \n"},
    {"page": " = A hill = \n The hill is low . \n"},
]

#: task: where it is defined, and what its splits hold.
TASKS = {
    "arc_easy": ("arc/arc_easy.yaml", ("train", "validation", "test"), _ARC),
    "arc_challenge": ("arc/arc_challenge.yaml", ("train", "validation", "test"), _ARC),
    "hellaswag": ("hellaswag/hellaswag.yaml", ("train", "validation"), _HELLASWAG),
    "mmlu_anatomy": ("mmlu/default/mmlu_anatomy.yaml", ("dev", "test"), _MMLU),
    "medqa_4options": ("medqa/medqa.yaml", ("train", "validation", "test"), _MEDQA),
    "gpqa_main_zeroshot": ("gpqa/zeroshot/gpqa_main_zeroshot.yaml", ("train",), _GPQA),
    "winogrande": ("winogrande/default.yaml", ("train", "validation"), _WINOGRANDE),
    "gsm8k": ("gsm8k/gsm8k.yaml", ("train", "test"), _GSM),
    "gsm8k_cot_zeroshot": ("gsm8k/gsm8k-cot-zeroshot.yaml", ("train", "test"), _GSM),
    "wikitext": ("wikitext/wikitext.yaml", ("train", "validation", "test"), _WIKITEXT),
}


def write_task(folder: Path, name: str, *, rows: list[dict] | None = None, **changes: object) -> None:
    """A task file of the stock name in ``folder``: the stock definition over local rows, with ``changes`` to it."""
    path, splits, own = TASKS[name]
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows or own), "utf-8")
    definition = {
        "include": str(DEFINITIONS / path),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": dict.fromkeys(splits, str(data))},
        **changes,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(definition, sort_keys=False), "utf-8")
