"""The lm-eval model ``latentmas-obf``: harness requests in, texts out; ordering, batches, journal and progress."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_latentmas import attention, harness
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.batching import affordable_rows
from lm_eval_latentmas.chain import Chain, Plan, Question
from lm_eval_latentmas.config import ChainSettings, is_known, split_arguments
from lm_eval_latentmas.conversation import pack, unpack
from lm_eval_latentmas.datasets import check_access, provenance
from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.embedded import embedded_model
from lm_eval_latentmas.journal import Journal, key_of
from lm_eval_latentmas.launch import Launch
from lm_eval_latentmas.model_adapters import adapter_class
from lm_eval_latentmas.progress import Progress
from lm_eval_latentmas.provenance import fingerprint, versions
from lm_eval_latentmas.records import Record, Response
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.sampling import Generation
from lm_eval_latentmas.scoring.consent import check_consent
from lm_eval_latentmas.scoring.samples_file import keep_samples_in
from lm_eval_latentmas.summary import columns, summarise

logger = logging.getLogger(__name__)


class LatentMASLM(HFLM):
    """Four agents on one causal LM that hand on a compressed KV cache; takes every argument of ``--model hf``.

    Own arguments: see `ChainSettings` and `RelaySettings`. With no ``pretrained`` the embedded model runs.
    Raises ValueError for any argument that is unknown or out of range, before weights load.
    """

    def __init__(self, pretrained: str | transformers.PreTrainedModel | None = None, **arguments: Any) -> None:
        if pretrained is None:
            arguments = embedded_model() | arguments
            pretrained = arguments.pop("pretrained")
        fields = _config_fields(pretrained, arguments)
        settings, loading = split_arguments(arguments, HFLM, config_fields=fields)
        self._attention = _attention_name(loading)
        self._loading = {"pretrained": _named(pretrained), **loading}
        self._configure(settings)
        _check_request()
        # Opened once before the weights, so that a wrong folder costs seconds and not a model load.
        if self.settings.run_dir is not None:
            Journal(self.settings.run_dir, self.claims).close()
        attention.register()
        super().__init__(pretrained=pretrained, **loading)
        self._take_ranks()
        if not isinstance(pretrained, str):
            self.model.set_attn_implementation(self._attention)
        self.adapter = adapter_class(self.config)(
            self.model, self.tokenizer, template_arguments=self.chat_template_args
        )
        self.fingerprint = fingerprint(self.model, self.tokenizer)
        self._open()

    def with_settings(self, **arguments: Any) -> LatentMASLM:
        """A model of other settings over the same weights; takes the package's own arguments alone."""
        settings, loading = split_arguments(arguments, HFLM)
        if loading:
            raise ValueError(f"{', '.join(loading)}: changes how weights load; make a new model for that")
        other = copy.copy(self)
        other.batch_sizes = {}
        other._configure(settings)
        other._open()
        return other

    def _configure(self, settings: ChainSettings) -> None:
        """Take settings over; raises ValueError for what is wrong in them."""
        self.settings = settings
        self.prompts = load_prompts(settings.prompts)
        self.compressor = compressor(settings.compressor, settings.hand_off)
        self.seed = settings.seed if settings.seed is not None else torch.initial_seed()
        self.claims = self._claims()
        if settings.latent_steps == 0:
            logger.warning("latent_steps=0: agents relay their prompts and think no latent step")

    def _open(self) -> None:
        """Open the journal and make the chain, once the model is there."""
        self.launch = Launch(self.world_size)
        self.journal = Journal(self.launch.folder(self.settings.run_dir), self.claims)
        keep_samples_in(self.settings.run_dir)
        self.journal.claim("model", {"fingerprint": self.fingerprint, "max_length": self.max_length})
        self.chain = Chain(
            self.adapter,
            self.compressor,
            self.prompts,
            self.settings,
            max_length=self.max_length,
            seed=self.seed,
            fingerprint=self.fingerprint,
            think_end_token=self.think_end_token,
            diagnostics=self._diagnostics(),
        )

    def _diagnostics(self) -> HopDiagnostics | None:
        if not self.settings.diagnostics:
            return None
        return HopDiagnostics(self.journal.folder, self.compressor, lambda token: self.tokenizer.decode([token]))

    # -- loading ------------------------------------------------------------------------------------

    def _get_backend(self, config: Any, backend: str = "default", trust_remote_code: bool | None = False) -> None:
        """Refuse, before weights load, what cannot run the chain."""
        super()._get_backend(config=config, backend=backend, trust_remote_code=trust_remote_code)
        if self.backend != "causal":
            raise ValueError(
                f"model_type '{config.model_type}': the chain needs a decoder-only causal LM, not {self.backend}"
            )
        adapter_class(config)

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        super()._create_model(*args, **(kwargs | {"attn_implementation": self._attention}))

    def _take_ranks(self) -> None:
        """Global rank and world size from Accelerate; HFLM sets them only with several GPUs, then the local rank."""
        accelerator = getattr(self, "accelerator", None)
        if accelerator is not None and accelerator.num_processes > 1:
            self._rank, self._world_size = accelerator.process_index, accelerator.num_processes
        if self._world_size > 1 and self.settings.relay == "shuffled":
            raise ValueError("relay=shuffled: each process knows its own documents alone; run it in one process")

    def _claims(self) -> dict[str, Any]:
        """Everything that changes output and is known before weights load."""
        loading = {key: str(value) for key, value in self._loading.items() if key not in _HARMLESS}
        return {
            "chain": self.settings.shaping() | {"seed": self.seed, "compressor": self.compressor.name},
            "loading": loading,
            "prompts": self.prompts.digest,
            "attention": self._attention,
            "versions": versions(),
        }

    # -- answering ----------------------------------------------------------------------------------

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as the question that every agent is shown; each agent's own turn is templated later."""
        return pack(chat_history, continued=not add_generation_prompt)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answer requests through the chain; finished samples of the run directory are not computed again."""
        questions = _questions(requests, self.max_gen_toks)
        others = self.chain.thought_about(questions)
        keys = [self._key(question, other) for question, other in zip(questions, others, strict=True)]
        self.journal.ask(
            self.launch.id, ((key, question.doc_id) for key, question in zip(keys, questions, strict=True))
        )
        known = self.journal.get(set(keys)) if self.settings.run_dir is not None else {}
        todo = {key: pair for key, *pair in zip(keys, questions, others, strict=True) if key not in known}
        plans = [self.chain.plan(question, key, thinking_about=other) for key, (question, other) in todo.items()]
        plans.sort(key=lambda plan: -(plan.thinker_tokens + plan.generation.max_gen_toks))
        _warn_clamped(plans)
        with Progress(len(plans), done=len(known), quiet=disable_tqdm or self.rank != 0) as progress:
            for plan, record in self.chain.answer(plans, self._rows(plans) if plans else 1, progress=progress.phase):
                self.journal.put(plan.key, record)
                known[plan.key] = record
                progress.step()
        return [self._response(known[key], request) for key, request in zip(keys, requests, strict=True)]

    def _key(self, question: Question, thought_about: Question) -> str:
        """What a sample is kept under: everything that changes its text."""
        parts = (question.identity, question.generation, thought_about.document)
        return key_of(self.claims, self.fingerprint, self.max_length, parts)

    def _rows(self, plans: Sequence[Plan]) -> int:
        """Rows that run side by side: as asked for, or as many as memory holds with all agents' histories."""
        if str(self.batch_size) != "auto":
            return int(self.batch_size)
        rows = affordable_rows(self.adapter, plans, self.settings.latent_steps, most=self.max_batch_size)
        self.batch_sizes[len(self.batch_sizes)] = rows
        return rows

    def _response(self, record: Record, request: Instance) -> Response:
        # A sample kept by an earlier run may have had another place in the data set then.
        record = replace(record, doc_id=request.doc_id if request.doc_id is not None else 0)
        response = Response(record.text, record)
        self.cache_hook.add_partial("generate_until", request.args, response)
        return response

    # -- results ------------------------------------------------------------------------------------

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Give lm-eval's ``--use_cache`` a table per configuration; its own keys know neither model nor arguments."""
        super().set_cache_hook(cache_hook)
        table = getattr(cache_hook, "dbdict", None)
        if table is not None:
            table.tablename = f"latentmas_{key_of(self.claims, self.fingerprint)[:24]}"
            table.conn.execute(f'CREATE TABLE IF NOT EXISTS "{table.tablename}" (key TEXT PRIMARY KEY, value BLOB)')
            table.conn.commit()

    def get_model_info(self) -> dict[str, Any]:
        """lm-eval's model info, and under ``latentmas`` all that is needed to repeat the run and what it cost."""
        records = self.journal.asked(self.launch.id)
        asked = harness.request()
        tasks = sorted({record.task for record in records})
        return super().get_model_info() | {
            "latentmas": {
                **self.claims,
                "data": provenance(tasks, asked.data_dir if asked else None),
                "model": {"fingerprint": self.fingerprint, "max_length": self.max_length, "device": str(self.device)},
                "prompt_set": self.prompts.as_dict(),
                "processes": self.world_size,
                "summary": summarise(records),
                "samples": columns(records),
            }
        }


#: Loading arguments that change speed or place, never the text.
_HARMLESS = {"batch_size", "max_batch_size", "device", "cache_dir", "token", "offload_folder", "trust_remote_code"}


def _questions(requests: Sequence[Instance], default_max: int) -> list[Question]:
    """Requests as questions; the n-th request for one document is its n-th repeat.

    In a run over several processes lm-eval pads ranks with copies of their last request: beyond a request's own
    repeats the copies begin again at 0, so that no document is computed twice, and their responses are not added to
    the request's own.
    """
    seen: Counter[int] = Counter()
    questions = []
    for request in requests:
        repeats = max(1, request.repeats or 1)
        repeat = seen[id(request)] % repeats
        seen[id(request)] += 1
        if seen[id(request)] > repeats:
            request.resps = _AtMost(repeats, request.resps)
        context, arguments = request.args
        talk = unpack(context)
        questions.append(
            Question(
                task=request.task_name or "",
                doc_id=request.doc_id if request.doc_id is not None else 0,
                repeat=repeat,
                text=talk.question,
                generation=Generation.of(arguments, default_max=default_max),
                system=talk.system,
                prefix=talk.prefix,
            )
        )
    return questions


class _AtMost(list):
    """A list that takes no more than ``most`` items; what is appended beyond is dropped."""

    def __init__(self, most: int, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.most = most

    def append(self, item: Any) -> None:
        """Append while there is room."""
        if len(self) < self.most:
            super().append(item)


def _warn_clamped(plans: Sequence[Plan]) -> None:
    clamped = [plan for plan in plans if plan.clamped]
    if clamped:
        least = min(plan.generation.max_gen_toks for plan in clamped)
        logger.warning(
            "%d of %d samples: fewer new tokens than asked fit the context (down to %d); they are flagged as clamped",
            len(clamped),
            len(plans),
            least,
        )


def _attention_name(loading: dict[str, Any]) -> str:
    """Our attention function for the implementation asked for."""
    asked = loading.pop("attn_implementation", None) or "sdpa"
    if asked not in attention.NAMES:
        raise ValueError(f"attn_implementation={asked}: the chain runs on {', '.join(attention.NAMES)}; leave it out")
    return attention.NAMES[asked]


def _config_fields(pretrained: Any, arguments: dict[str, Any]) -> list[str]:
    """Fields of the model's own config, read only where an argument might be one."""
    if not isinstance(pretrained, str) or all(is_known(name, HFLM) for name in arguments):
        return []
    loading = {
        name: arguments[name]
        for name in ("revision", "subfolder", "trust_remote_code", "gguf_file")
        if name in arguments
    }
    return list(transformers.AutoConfig.from_pretrained(pretrained, **loading).to_dict())


def _check_request() -> None:
    """Refuse, before weights load, tasks that may not run code or whose data cannot be had."""
    if (asked := harness.request()) is not None:
        check_consent(asked.tasks, asked.confirmed)
        check_access(asked.tasks, asked.data_dir)


def _named(pretrained: Any) -> str:
    return pretrained if isinstance(pretrained, str) else f"{type(pretrained).__name__} object"
