"""Start, probe and stop one arm's server. See formats/server.schema.json."""

from evalharness.server.server import LaunchSpec, Server, open_server

__all__ = ["LaunchSpec", "Server", "open_server"]
