"""Parley's engine: it runs requests through the stages of a model, on any number of workers, and streams the results.

This package lists all public names. ``app`` uses no others. ``import engine`` does not import torch, and nothing in
this package opens a socket to clients.
"""

import os

from engine.audio.wav import wav
from engine.chunk import (
    Audio,
    Codes,
    Output,
    Speech,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
    Usage,
    VideoFrame,
    Word,
)
from engine.control.chunks import Chunks
from engine.control.deployments import Deployments
from engine.control.engine import Engine
from engine.control.replica_info import ReplicaInfo
from engine.control.timeline import Ledger, StageTime
from engine.core import (
    ANSWER,
    IN_WRITING,
    MIC_RATE_HZ,
    PICTURES,
    SPEAKER_RATE_HZ,
    AudioPart,
    CameraFeed,
    Duplex,
    DuplexCounts,
    ImagePart,
    JsonFormat,
    Message,
    ModelInfo,
    Part,
    Remembered,
    Request,
    Sampling,
    TextPart,
    TokenCost,
    TokenIds,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
    Voice,
)
from engine.deployment.config import ChunkSpec, EngineSpec, StageSpec, WorkerSpec, load_config, parse_config
from engine.deployment.describe import describe, written_out
from engine.deployment.did_you_mean import nearest
from engine.deployment.llm_urls import thinker_of
from engine.errors import (
    ConfigError,
    ContextOverflow,
    EngineError,
    Overloaded,
    Preempted,
    ReplicaLost,
    RequestError,
    SchemaError,
    StageFailed,
    StageUnavailable,
    Stalled,
    WeightsError,
    WireError,
)

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when onnxruntime is imported: no usage reports
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is imported, by whatever library

__all__ = [
    "ANSWER",
    "IN_WRITING",
    "MIC_RATE_HZ",
    "PICTURES",
    "SPEAKER_RATE_HZ",
    "Audio",
    "AudioPart",
    "CameraFeed",
    "ChunkSpec",
    "Chunks",
    "Codes",
    "ConfigError",
    "ContextOverflow",
    "Deployments",
    "Duplex",
    "DuplexCounts",
    "Engine",
    "EngineError",
    "EngineSpec",
    "ImagePart",
    "JsonFormat",
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
    "SchemaError",
    "Speech",
    "StageFailed",
    "StageSpec",
    "StageTime",
    "StageUnavailable",
    "Stalled",
    "Text",
    "TextPart",
    "TokenCost",
    "TokenIds",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallPart",
    "ToolDefinition",
    "ToolResultPart",
    "Transcript",
    "Usage",
    "VideoFrame",
    "VideoPart",
    "Voice",
    "WeightsError",
    "WireError",
    "Word",
    "WorkerSpec",
    "describe",
    "load_config",
    "nearest",
    "parse_config",
    "thinker_of",
    "wav",
    "written_out",
]
