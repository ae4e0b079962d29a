"""Creates responses: from settings and items to a task that is ready to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from msgspec.structs import replace

from app.facts import SessionMemory
from app.realtime.conversation import Conversation, Rule, Utterance, head_chars, prompt
from app.realtime.output.hosted_tools import HostedTools
from app.realtime.output.prompt_version import PromptVersion
from app.realtime.output.request_builder import RequestBuilder, last_untranscribed
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.output.response_spec import ResponseSpec
from app.realtime.output.response_task import ResponseTask
from app.realtime.ports import AnswerSource, PlayoutProfile
from app.realtime.protocol import Item, ResponseOptions, ServerEvent, SessionOptions, response_options
from app.realtime.session_context import SessionContext
from app.realtime.speech_hints import speech_hints
from engine import ToolDefinition, Usage
from engine.core import SpeechHints

LINES = {"purpose": "tool_wait"}
"""The metadata of lines that are spoken while tools run."""


class ResponseFactory:
    """The response factory of one session. Responses send their events to ``emit``."""

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        options: SessionOptions,
        profile: PlayoutProfile,
        emit: Callable[[ServerEvent], None],
        hosted: HostedTools,
        memory: SessionMemory,
    ) -> None:
        self.options = options
        """The session's settings. Responses that exist already keep theirs."""
        self.profile = profile
        self._context = context
        self._conversation = conversation
        self._emit = emit
        self._hosted = hosted
        self._memory = memory
        self._requests = RequestBuilder(session_id, context)
        self.truncation = self._requests.truncation

    @property
    def default_options(self) -> ResponseOptions:
        """The settings of a response without settings of its own."""
        return response_options(self.options, {})[0]

    def default_task(self, utterance: Utterance | None = None, preemptible: bool = False) -> ResponseTask:
        """Make a response to the conversation and to ``utterance`` after it. Raises Refusal."""
        items = self._conversation.items
        return self.task(ResponseSpec(self.default_options, items, utterance, preemptible=preemptible))

    def task(self, spec: ResponseSpec) -> ResponseTask:
        """Create a response. Raises Refusal if the prompt is too long."""
        options, utterance = spec.options, spec.utterance
        conversation = self._conversation if spec.kept else None
        labels = spec.tool_servers if spec.kept else ()
        hosting = self._hosted.hosting([tool.name for tool in options.tools], labels)
        response = ResponseEmitter(options, conversation, self._context.engine.model, self._emit, self.profile, hosting)
        hosted = tuple(tool.tool for tool in hosting.functions.values())
        if spec.kept:
            options = self._with_memory(options)
            spec = dataclasses.replace(spec, options=options)
        items = self._requests.fit(spec, self.options, hosted)
        input_item_id = last_untranscribed(spec.items) if utterance is None else utterance.item_id
        hints = self._hints(has_speech=input_item_id is not None)
        request = self._requests.build(response.id, spec, items, hosted, hints)
        version = self.prompt_version(utterance)
        task = ResponseTask(response, request, utterance, input_item_id, version, self._context.now)
        task.waits = self._context.waits.part()
        task.whole_conversation = spec.whole_conversation
        task.size = spec.size
        task.history = items
        task.instructions = options.instructions
        task.head_chars = head_chars(options, hosted)
        return task

    def lines(self, source: AnswerSource) -> ResponseTask:
        """Make a response that is spoken while tools run. The conversation does not store it."""
        options = replace(self.default_options, metadata=LINES, tools=[])
        response = ResponseEmitter(options, None, self._context.engine.model, self._emit, self.profile)
        request = self._requests.lines(response.id, options, self.language)
        task = ResponseTask(response, request, None, None, self.prompt_version(None), self._context.now)
        task.waits = self._context.waits.part()
        task.source = source
        return task

    @property
    def language(self) -> str:
        """The language in which to speak lines, as BCP 47: the user's, or else the voice's."""
        model = self._context.engine.model
        voice = self._context.voice(self.default_options.voice)
        spoken = (one.language for one in model.voices if one.id == voice)
        return next(filter(None, (*self._hints(has_speech=False).languages, *spoken, *model.languages)), "en")

    def _hints(self, has_speech: bool) -> SpeechHints:
        """Return the hints for a request.

        Speech gets the session's hints, so that the user may change the language. A request without speech is in the
        language of the last turn, unless the session sets exactly one.
        """
        hints = speech_hints(self.options)
        if has_speech or len(hints.languages) == 1 or not self._conversation.language:
            return hints
        return replace(hints, languages=(self._conversation.language, *hints.languages))

    def shorten(self, task: ResponseTask) -> bool:
        """Leave the older half of the history out of a task's request. Returns False if nothing can be left out."""
        rule, live = self.options.truncation, task.request.live
        items = self.truncation.halve(rule, task.history, live, task.whole_conversation)
        if items is None:
            return False
        self.set_history(task, items)
        return True

    def set_history(self, task: ResponseTask, items: tuple[Item, ...]) -> None:
        """Replace the items in a task's prompt."""
        task.history = items
        task.request = replace(task.request, messages=prompt(task.instructions, items))

    @property
    def is_crowded(self) -> bool:
        """Whether the conversation has become so long that its older turns should be summarized."""
        return self.truncation.is_crowded(*self._default_prompt())

    def summarize(self, written: str) -> None:
        """Let a summary stand for the conversation's older turns. ``written`` is the model's, or "" without one."""
        self.truncation.summarize(*self._default_prompt(), written)

    def _default_prompt(self) -> tuple[Rule, tuple[Item, ...], ResponseOptions, tuple[ToolDefinition, ...]]:
        options = self._with_memory(self.default_options)
        hosting = self._hosted.hosting([tool.name for tool in options.tools])
        hosted = tuple(tool.tool for tool in hosting.functions.values())
        return self.options.truncation, self._conversation.items, options, hosted

    def count(self, task: ResponseTask, usage: Usage) -> None:
        """Learn the sizes of the conversation's items from the token counts of a response to it."""
        if not task.whole_conversation or not usage.input_tokens:
            return
        spoken = None if task.utterance is None else self._conversation.find(task.utterance.item_id)
        counts = self.truncation.counts
        if task.utterance is None or spoken is not None:
            counts.read((*task.history, *([spoken] if spoken else [])), task.head_chars, usage.input_tokens)
        counts.wrote(task.response.written, usage.output_tokens)

    def prompt_version(self, utterance: Utterance | None) -> PromptVersion:
        """Return the version of the prompt that a response made now would have."""
        watched = utterance is not None and utterance.watched
        tools = tuple(self._hosted.hosting(()).functions)
        return PromptVersion(self._conversation.revision, self.options, watched, tools, self._memory.text)

    def _with_memory(self, options: ResponseOptions) -> ResponseOptions:
        """Return options whose instructions contain the facts of earlier sessions."""
        if not self._memory.text:
            return options
        return replace(options, instructions=f"{options.instructions}\n\n{self._memory.text}".lstrip("\n"))
