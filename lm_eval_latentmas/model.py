"""The lm-eval model ``latentmas-obf``: harness requests in, texts out; ordering, batches, journal and progress."""

from __future__ import annotations

import copy
import gc
import json
import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_latentmas import attention, harness, instances
from lm_eval_latentmas.agents import load_prompts
from lm_eval_latentmas.batching import affordable_rows, affordable_windows
from lm_eval_latentmas.chain import Chain
from lm_eval_latentmas.config import ChainSettings, split_arguments
from lm_eval_latentmas.conversation import pack
from lm_eval_latentmas.datasets import check_access, provenance
from lm_eval_latentmas.diagnostics import HopDiagnostics
from lm_eval_latentmas.embedded import embedded_model
from lm_eval_latentmas.journal import Journal, key_of
from lm_eval_latentmas.launch import Launch, check_together, processes
from lm_eval_latentmas.likelihood import score
from lm_eval_latentmas.loading import LoadedLM, attention_name, config_fields, named
from lm_eval_latentmas.machine import check_machine
from lm_eval_latentmas.model_adapters import ModelAdapter, adapter_class, verify
from lm_eval_latentmas.pipeline.chain import PipelineChain
from lm_eval_latentmas.pipeline.launched import check_no_pipeline, launched
from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.pipeline.shares import called, shared_out
from lm_eval_latentmas.planning import Plan, Question
from lm_eval_latentmas.progress import Progress
from lm_eval_latentmas.provenance import fingerprint, versions
from lm_eval_latentmas.records import Record, Response
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.sampling import Generation
from lm_eval_latentmas.scoring.consent import check_consent
from lm_eval_latentmas.scoring.samples_file import keep_samples_in
from lm_eval_latentmas.seats import agent_devices, check_alone, placed
from lm_eval_latentmas.summary import columns, summarise
from lm_eval_latentmas.text_chain import TextChain

logger = logging.getLogger(__name__)


class LatentMASLM(LoadedLM):
    """Four agents on one causal LM that hand on a compressed KV cache; takes every argument of ``--model hf``.

    Own arguments: see `ChainSettings` and `RelaySettings`. With no ``pretrained`` the embedded model runs.
    Raises ValueError for any argument that is unknown or out of range, before weights load.
    """

    def __init__(self, pretrained: str | transformers.PreTrainedModel | None = None, **arguments: Any) -> None:
        self._make(pretrained, **arguments)
        while self._serves:
            self.chain.serve()
            self.__dict__.clear()  # weights go before others come
            gc.collect()
            if (following := launched().next_arguments()) is None:
                sys.exit(0)  # process 0 has its results: lm-eval goes no further here
            self._make(**following)

    def _make(self, pretrained: str | transformers.PreTrainedModel | None, **arguments: Any) -> None:
        self._given = {"pretrained": pretrained, **arguments}
        if pretrained is None:
            arguments = embedded_model() | arguments
            pretrained = arguments.pop("pretrained")
        # HFLM's own default is a GPU, also where PyTorch knows none
        arguments.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
        fields = config_fields(pretrained, arguments)
        settings, loading = split_arguments(arguments, HFLM, config_fields=fields)
        check_machine(loading)
        self._attention = attention_name(loading)
        self._loading = {"pretrained": named(pretrained), **loading}
        self._configure(settings)
        self.shares = shared_out(settings.pipeline, self.prompts, pretrained, loading)
        if self.shares is None:
            check_together(settings.relay, processes())
            check_no_pipeline()
        self._ring: Ring | None = None
        _check_request()
        if self.shares is None:
            self._check_answering()
        attention.register()
        try:
            self._load(pretrained, loading)
            self._open()
        except BaseException as error:
            if self._ring is not None:
                self._ring.watch.fail(error)
            raise

    def _load(self, pretrained: str | transformers.PreTrainedModel, loading: dict[str, Any]) -> None:
        """Load the model and prove it; in a pipeline, see that all processes have the same one."""
        super().__init__(pretrained=pretrained, **loading)
        self._take_ranks()
        if not isinstance(pretrained, str):
            self.model.set_attn_implementation(self._attention)
        self.adapter = adapter_class(self.config)(self.model, self.tokenizer, **self._adapting())
        self._copies: dict[torch.device, ModelAdapter] = {}
        verify(self.adapter)
        self.fingerprint = fingerprint(self.model, self.tokenizer)
        if self._ring is not None:
            # machines may keep the same weights in different folders
            loading = {name: value for name, value in self.claims["loading"].items() if name not in _PATHS}
            told = {"fingerprint": self.fingerprint, "max_length": self.max_length}
            self._ring.agree({**self.claims, "loading": loading, **told})

    @property
    def _serves(self) -> bool:
        """Whether this process runs agents of a pipeline for process 0, and answers nothing itself."""
        return self._ring is not None and self._ring.rank != 0

    def _adapting(self) -> dict[str, Any]:
        """What adapters are made with, beside model and tokenizer."""
        return {"template_arguments": self.chat_template_args, "max_length": self.max_length}

    def with_settings(self, **arguments: Any) -> LatentMASLM:
        """A model of other settings over the same weights; takes the package's own arguments alone."""
        settings, loading = split_arguments(arguments, HFLM)
        if self._ring is not None or settings.pipeline:
            raise ValueError("pipeline: its processes are made with their settings; make a new model for others")
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
        self._devices = agent_devices(settings.agent_devices, self.prompts)
        check_alone(settings.agent_devices, self._loading, processes())
        self.seed = settings.seed if settings.seed is not None else torch.initial_seed()
        self.claims = self._claims()
        if settings.mode == "text":
            self.prompts.check_text()
        if idle := settings.idle():
            beside = "relay=none" if settings.relay == "none" else f"mode={settings.mode}"
            logger.warning("%s: %s set, without effect", beside, ", ".join(idle))
        relays = settings.mode == "latent" and settings.relay != "none"
        if relays and settings.latent_steps == 0:
            logger.warning("latent_steps=0: agents relay their prompts and think no latent step")
        if relays and (unread := self.compressor.unread):
            logger.warning("compressor=%s: %s set, without effect", settings.compressor, ", ".join(unread))

    def _open(self) -> None:
        """Open the journal and make the chain, once the model is there."""
        self.chain = self._chain(self._diagnostics())
        if self._serves:
            return
        check_together(self.settings.relay, self.world_size)
        self.launch = Launch(self.world_size)
        self.journal = Journal(self.launch.folder(self.settings.run_dir), self.claims)
        keep_samples_in(self.settings.run_dir)
        self.journal.claim("model", {"fingerprint": self.fingerprint, "max_length": self.max_length})
        self.without_agents: dict[str, str] = {}
        if self._ring is not None:
            weakref.finalize(self, self._ring.end)

    def _chain(self, diagnostics: HopDiagnostics | None) -> Chain:
        kind: Callable[..., Chain] = TextChain if self.settings.mode == "text" else Chain
        if self._ring is not None:
            kind = partial(PipelineChain, ring=self._ring, shares=self.shares)
        return kind(
            self.adapter,
            self.compressor,
            self.prompts,
            self.settings,
            max_length=self.max_length,
            seed=self.seed,
            fingerprint=self.fingerprint,
            think_end_token=self.think_end_token,
            diagnostics=diagnostics,
            elsewhere=placed(self.adapter, self._devices, self._copies, **self._adapting()),
        )

    def _diagnostics(self) -> HopDiagnostics | None:
        if not self.settings.diagnostics:
            return None
        return HopDiagnostics(self.settings.run_dir, self.compressor, lambda token: self.tokenizer.decode([token]))

    # -- loading ------------------------------------------------------------------------------------

    def _get_config(self, *args: Any, **kwargs: Any) -> None:
        """Let the processes of a pipeline join, once HFLM has made them known to each other, before anything loads."""
        if self.shares is not None:
            names, given = called(self.shares, self.prompts), self._given | {"seed": self.seed}
            self._ring = launched().join(names, self.settings.pipeline_timeout, given)
            if self._ring.rank == 0:
                self._check_answering()
        super()._get_config(*args, **kwargs)

    def _check_answering(self) -> None:
        """Refuse, before weights load, where the process that answers lacks the data or cannot write its folder."""
        if (asked := harness.request()) is not None:
            check_access(asked.tasks, asked.data_dir)
        if self.settings.run_dir is not None:
            Journal(self.settings.run_dir, self.claims).close()

    def _take_ranks(self) -> None:
        """Global rank and world size from Accelerate; HFLM sets them only with several GPUs, then the local rank."""
        if self._ring is not None:
            self._rank, self._world_size = 0, 1  # lm-eval sees one process, with all documents
            return
        accelerator = getattr(self, "accelerator", None)
        if accelerator is not None and accelerator.num_processes > 1:
            self._rank, self._world_size = accelerator.process_index, accelerator.num_processes

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
        questions = instances.written(requests, self.max_gen_toks)
        records = self._records(questions, self.chain.answer, quiet=disable_tqdm)
        # a sample kept by an earlier run may have had another place in the data set then
        records = [replace(record, doc_id=one.doc_id) for record, one in zip(records, questions, strict=True)]
        return [self._response(record, request) for record, request in zip(records, requests, strict=True)]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Score continuations by the judger, after the agents have thought about the context; one chain a context.

        Without a context there is nothing to think about, and the model scores alone, as under ``--model hf``.
        """
        bare = [request for request in requests if not request.args[0]]
        asked = [request for request in requests if request.args[0]]
        self._note_plain(bare, "empty context")
        plain = super().loglikelihood(bare, disable_tqdm) if bare else []
        scores = dict(zip(map(id, bare), plain, strict=True))
        questions = instances.scored(asked)
        records = self._records(questions, partial(score, self.chain), quiet=disable_tqdm)
        for request, question, record in zip(asked, questions, records, strict=True):
            scores[id(request)] = record.scores[question.continuations.index(request.args[1])]
            self.cache_hook.add_partial("loglikelihood", request.args, scores[id(request)])
        return [scores[id(request)] for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Score whole texts by the model alone, as under ``--model hf``: there is no question to think about."""
        self._note_plain(requests, "rolling log-likelihood")
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def _note_plain(self, requests: Sequence[Instance], why: str) -> None:
        for task in sorted({request.task_name or "" for request in requests} - set(self.without_agents)):
            self.without_agents[task] = why
            logger.warning("task %s: %s, so that no agent thinks; the model scores alone", task, why)

    def _detect_batch_size(self, requests: Any = None, pos: int = 0) -> int:
        """Rows that the model scores alone at a time; HFLM finds the number out by running out of memory."""
        longest = max((len(row[1]) + len(row[2]) for row in (requests or [])[pos:]), default=self.max_length)
        return affordable_windows(self.adapter, min(longest, self.max_length), most=self.max_batch_size)

    def _records(self, questions: Sequence[Question], run: Callable[..., Any], *, quiet: bool) -> list[Record]:
        """A record per question; ``run`` makes those that the run directory lacks, longest first."""
        found = self._found(questions, run, quiet=quiet) if questions else []
        self.launch.tell_first(
            json.dumps([key, question.doc_id, record.to_json()])
            for (key, record), question in zip(found, questions, strict=True)
        )
        return [record for _, record in found]

    def _collect(self) -> None:
        """Keep what processes on other machines found: their run directory may be another folder."""
        told = [json.loads(text) for text in self.launch.told()]
        if not told:
            return
        held = self.journal.get(key for key, _, _ in told)
        for key, _, text in told:
            if key not in held:
                self.journal.put(key, Record.from_json(text))
        self.journal.ask(self.launch.id, ((key, doc_id) for key, doc_id, _ in told))

    def _found(
        self, questions: Sequence[Question], run: Callable[..., Any], *, quiet: bool
    ) -> list[tuple[str, Record]]:
        """The key and the record of every question that this process was asked."""
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
        with self.chain.working(), Progress(len(plans), done=len(known), quiet=quiet or self.rank != 0) as progress:
            for plan, record in run(plans, self._rows(plans) if plans else 1, progress=progress.phase):
                self.journal.put(plan.key, record)
                known[plan.key] = record
                progress.step()
        return [(key, known[key]) for key in keys]

    def _key(self, question: Question, thought_about: Question) -> str:
        """What a sample is kept under: everything that changes its text or scores."""
        parts = (question.identity, question.generation, question.continuations, thought_about.document)
        return key_of(self.claims, self.fingerprint, self.max_length, parts)

    def _rows(self, plans: Sequence[Plan]) -> int:
        """Rows that run side by side: as asked for, or as many as memory holds with all agents' histories."""
        if str(self.batch_size) != "auto":
            return int(self.batch_size)
        per_agent = self.settings.text_tokens if self.settings.mode == "text" else self.settings.latent_steps
        devices = [seat.adapter.device for seat in self.chain.seats]
        rows = affordable_rows(self.adapter, plans, per_agent, most=self.max_batch_size, devices=devices)
        self.batch_sizes[len(self.batch_sizes)] = rows
        return rows

    def _response(self, record: Record, request: Instance) -> Response:
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
        self._collect()
        records = self.journal.asked(self.launch.id)
        asked = harness.request()
        tasks = sorted({record.task for record in records})
        return super().get_model_info() | {
            "latentmas": {
                **self.claims,
                "data": provenance(tasks, asked.data_dir if asked else None),
                "model": {"fingerprint": self.fingerprint, "max_length": self.max_length, "device": str(self.device)},
                "prompt_set": self.prompts.as_dict(),
                "processes": self.world_size if self._ring is None else self._ring.processes,
                "places": self._places(),
                "without_agents": self.without_agents,
                "summary": summarise(records),
                "samples": columns(records),
            }
        }

    def _places(self) -> dict[str, Any]:
        """Where agents ran, as plain JSON: what is given of it, and per process of a pipeline its agents."""
        told = self.settings.places()
        if self.shares is not None:
            agents = [agent.name for agent in self.prompts.agents]
            told["pipeline"] = [[agents[place] for place in share] for share in self.shares]
        return told


#: Loading arguments whose effect the model's fingerprint tells.
_PATHS = {"pretrained", "tokenizer"}
#: Loading arguments that change speed or place, never the text.
_HARMLESS = {"batch_size", "max_batch_size", "device", "cache_dir", "token", "offload_folder", "trust_remote_code"}


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


def _check_request() -> None:
    """Refuse, before weights load, wrong ``gen_kwargs``, and tasks that may not run code."""
    if (asked := harness.request()) is not None:
        Generation.of(asked.generation)
        check_consent(asked.tasks, asked.confirmed)
