"""Parley's engine: requests in, streams of text and speech out, through the stages of a model on any number of workers.

These are its public names; ``app`` uses no others. Importing it needs no torch.
"""

from engine.chunk import Audio, Codes, Output, Speech, Text, ToolCall, ToolCallDelta, Transcript, Usage
from engine.config import ChunkSpec, EngineSpec, WorkerSpec, load_config, parse_config
from engine.control.chunks import Chunks
from engine.control.engine import Engine
from engine.control.timeline import Ledger
from engine.core import (
    MIC_RATE_HZ,
    SPEAKER_RATE_HZ,
    AudioPart,
    ImagePart,
    Message,
    ModelInfo,
    Part,
    Remembered,
    ReplicaInfo,
    Request,
    Sampling,
    TextPart,
    TokenCost,
    Tool,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    Voice,
)
from engine.describe import describe
from engine.errors import (
    ConfigError,
    ContextOverflow,
    EngineError,
    Overloaded,
    Preempted,
    ReplicaLost,
    RequestError,
    StageFailed,
    StageUnavailable,
    Stalled,
    WeightsError,
    WireError,
)
from engine.wav import wav

__all__ = [
    "MIC_RATE_HZ",
    "SPEAKER_RATE_HZ",
    "Audio",
    "AudioPart",
    "ChunkSpec",
    "Chunks",
    "Codes",
    "ConfigError",
    "ContextOverflow",
    "Engine",
    "EngineError",
    "EngineSpec",
    "ImagePart",
    "Ledger",
    "Message",
    "ModelInfo",
    "Output",
    "Overloaded",
    "Part",
    "Preempted",
    "Remembered",
    "ReplicaInfo",
    "ReplicaLost",
    "Request",
    "RequestError",
    "Sampling",
    "Speech",
    "StageFailed",
    "StageUnavailable",
    "Stalled",
    "Text",
    "TextPart",
    "TokenCost",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallPart",
    "ToolResultPart",
    "Transcript",
    "Usage",
    "VideoPart",
    "Voice",
    "WeightsError",
    "WireError",
    "WorkerSpec",
    "describe",
    "load_config",
    "parse_config",
    "wav",
]
