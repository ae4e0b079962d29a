"""Private parts of uvicorn that are extended here, verified for the versions in READ.

For another version, ``test_uvicorn_compat`` lists what to verify again: the methods that ``HttpProtocol``,
``SocketProtocol`` and ``Server`` override or call, and the attributes that they use.
"""

from uvicorn._types import ASGIReceiveEvent as ASGIReceiveEvent
from uvicorn._types import ASGISendEvent as ASGISendEvent
from uvicorn.config import STARTUP_FAILURE as STARTUP_FAILURE
from uvicorn.protocols.http.flow_control import FlowControl as FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol as H11Protocol
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol as WebSocketsSansIOProtocol

READ = ("0.53.0", "0.54.0")
