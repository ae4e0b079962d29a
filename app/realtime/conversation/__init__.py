"""The conversation: items in order, the prompt made from them, and the turn in progress.

Independent of wire formats, sockets and the engine's workers.
"""

from app.realtime.conversation.conversation import Conversation, prompt
from app.realtime.conversation.model_context import check_items, check_settings
from app.realtime.conversation.raw_items import finished
from app.realtime.conversation.sizes import size_of
from app.realtime.conversation.speech_items import is_untranscribed, with_transcript
from app.realtime.conversation.summary import INSTRUCTION as SUMMARY_INSTRUCTION
from app.realtime.conversation.tools import OfferedTools, check_tool_choice, functions_only, report_tool_servers
from app.realtime.conversation.truncation import Rule, Truncation, head_chars
from app.realtime.conversation.utterance import EARLY, Utterance

__all__ = [
    "EARLY",
    "SUMMARY_INSTRUCTION",
    "Conversation",
    "OfferedTools",
    "Rule",
    "Truncation",
    "Utterance",
    "check_items",
    "check_settings",
    "check_tool_choice",
    "finished",
    "functions_only",
    "head_chars",
    "is_untranscribed",
    "prompt",
    "report_tool_servers",
    "size_of",
    "with_transcript",
]
