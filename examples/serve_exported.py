"""Serves an exported SavedModel over HTTP, with TensorFlow and the standard library alone.

    python examples/serve_exported.py runs/own_agent/exported 8000
    curl -d '{"observation": [[1.0, 0.0, 0.0]]}' http://127.0.0.1:8000/serving_default

The path of a request names a signature of the export: `serving_default` for the deterministic action, `sample`, and
`values` where they were exported. A policy with a state begins an episode with `{"rows": 1}` at `initial_state`; every
answer has its next state beside the action, which goes into the next request. Several rows are answered at once.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import tensorflow as tf


def answer(signatures: dict[str, Any], name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Returns what a signature computes, as lists by name.

    Raises:
        ValueError: an unknown signature, other inputs than it has, or values of another shape or type.
    """
    if name not in signatures:
        raise ValueError(f"Signatures are {', '.join(signatures)}. Received: {name!r}")
    wanted = signatures[name].structured_input_signature[1]
    if not isinstance(given, dict) or given.keys() != wanted.keys():
        raise ValueError(f"{name} takes {', '.join(wanted)}. Received: {given!r}")
    inputs = {key: tf.constant(given[key], spec.dtype) for key, spec in wanted.items()}
    for key, spec in wanted.items():
        if not spec.shape.is_compatible_with(inputs[key].shape):
            raise ValueError(f"{key} has the shape {spec.shape}. Received: {inputs[key].shape}")
    return {key: x.numpy().tolist() for key, x in signatures[name](**inputs).items()}


def handler_of(signatures: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    """Returns the class that answers requests with these signatures."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = 200, answer(signatures, self.path.strip("/"), given)
            except (ValueError, TypeError) as error:  # which wrong JSON raises too
                status, content = 400, {"error": str(error)}
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    """Loads the export and serves it until it is interrupted."""
    parser = argparse.ArgumentParser(description="Serves an exported SavedModel over HTTP.")
    parser.add_argument("path", help="what tfsac export wrote")
    parser.add_argument("port", type=int, nargs="?", default=8000, help="0 for any free one")
    options = parser.parse_args()
    loaded = tf.saved_model.load(options.path)
    with ThreadingHTTPServer(("127.0.0.1", options.port), handler_of(dict(loaded.signatures))) as server:
        print(f"serving {', '.join(loaded.signatures)} at http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
