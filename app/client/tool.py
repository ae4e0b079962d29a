"""A function of the client's program that the model may call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. ``parameters`` is the JSON schema of its arguments.

    Raises:
        TypeError: ``run`` is not a function, or does not accept the arguments that ``parameters`` describes.
        ValueError: ``description`` is empty.
    """

    name: str
    description: str
    """What the function does. The model reads it to decide whether to call the function."""
    run: Callable[..., Any]
    """The function. It receives the arguments by name; the model receives its result as JSON.

    An ``async`` function runs in the client's event loop, any other function in a thread.
    """
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    parley: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parley's settings for a tool, such as ``{"speech": True}``. Other servers do not know them.

    With ``on_interrupt: cancel``, the user's speech cancels the function. A thread cannot be cancelled: its result is
    dropped. ``answer`` is not for this client, which requests each answer itself.
    """

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise TypeError(f"tool {self.name!r}: run must be a function, not {type(self.run).__name__}")
        if not self.description.strip():
            raise ValueError(f"tool {self.name!r}: description is empty; say in a sentence what the function does")
        if not isinstance(self.parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- a user's value
            raise TypeError(f"tool {self.name!r}: parameters must be a JSON schema as a dict")
        self._check_arguments()

    def schema(self) -> dict[str, Any]:
        """Return the tool in the format of the session's settings."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        ours = {"parley": dict(self.parley)} if self.parley else {}
        return {"type": "function", **about, **ours}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Run the function and return its result. Raises whatever the function raises."""
        if inspect.iscoroutinefunction(self.run):
            return await self.run(**arguments)
        result = await asyncio.to_thread(self.run, **arguments)
        return await result if inspect.isawaitable(result) else result

    def _check_arguments(self) -> None:
        """Raise TypeError unless the function accepts the described arguments: all of them, and the required ones."""
        try:
            signature = inspect.signature(self.run)
        except ValueError:
            return  # some built-in functions have no signature
        for names in (self.parameters.get("properties", ()), self.parameters.get("required", ())):
            try:
                signature.bind(**dict.fromkeys(names))
            except TypeError as error:
                wrong = f"its function does not accept the arguments that parameters describes: {error}"
                raise TypeError(f"tool {self.name!r}: {wrong}") from None
