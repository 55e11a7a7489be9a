"""Serves an exported SavedModel with TensorFlow Serving's REST API; needs only TensorFlow and the standard library.

    python examples/serve_exported.py runs/own_agent/exported 8501
    curl -d '{"inputs": {"observation": [[1.0, 0.0, 0.0]]}}' http://localhost:8501/v1/models/policy:predict

A client for this server also works with TensorFlow Serving if the model is named "policy". A request may have a
"signature_name": `serving_default`, the default, for the deterministic action, `sample`, or `values` if they were
exported. A policy with a state starts an episode with `initial_state`; every response contains the action and the next
state, which goes into the next request.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import tensorflow as tf

MODEL = "/v1/models/policy"


def predict(signatures: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request's body: "outputs" for "inputs", by column, or "predictions" for "instances", by
    row. A signature with a single input or output does not need its name.

    Raises:
        ValueError: an unknown signature, an invalid body, inputs that the signature does not have, or values of the
            wrong shape or type.
    """
    if not isinstance(body, dict) or ("inputs" in body) == ("instances" in body):
        raise ValueError(f'A body must have either "inputs" or "instances". Received: {body!r}')
    name = body.get("signature_name", "serving_default")
    if name not in signatures:
        raise ValueError(f"The signatures are {', '.join(signatures)}. Received: {name!r}")
    wanted = signatures[name].structured_input_signature[1]
    columns = body["inputs"] if "inputs" in body else in_columns(body["instances"])
    if not isinstance(columns, dict) and len(wanted) == 1:
        columns = {next(iter(wanted)): columns}
    if not isinstance(columns, dict) or columns.keys() != wanted.keys():
        raise ValueError(f"{name} takes {', '.join(wanted)}. Received: {columns!r}")
    given = {key: tf.constant(columns[key], spec.dtype) for key, spec in wanted.items()}
    for key, spec in wanted.items():
        if not spec.shape.is_compatible_with(given[key].shape):
            raise ValueError(f"{key} must have the shape {spec.shape}. Received: {given[key].shape}")
    outputs = {key: x.numpy().tolist() for key, x in signatures[name](**given).items()}
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    if "inputs" in body:
        return {"outputs": outputs if only is None else only}
    rows = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions": rows if only is None else only}


def in_columns(rows: list[Any]) -> Any:
    """Converts rows, which are objects with all inputs, to one object of lists; leaves rows of a single input as is."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f'"instances" must be a list of at least one row. Received: {rows!r}')
    if not isinstance(rows[0], dict):
        return rows
    if any(not isinstance(row, dict) or row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"All instances must have the same inputs. Received: {rows!r}")
    return {key: [row[key] for row in rows] for key in rows[0]}


def handler_of(signatures: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    """Returns a request handler class for these signatures."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == MODEL:
                self.send(200, {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]})
            else:
                self.send(404, {"error": f"The path must be {MODEL}. Received: {self.path!r}"})

        def do_POST(self) -> None:
            if self.path != f"{MODEL}:predict":
                self.send(404, {"error": f"Send requests to {MODEL}:predict. Received: {self.path!r}"})
                return
            try:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
                self.send(200, predict(signatures, body))
            except (ValueError, TypeError) as error:  # also raised for invalid JSON
                self.send(400, {"error": str(error)})

        def send(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    """Loads the export and serves it until it is interrupted."""
    parser = argparse.ArgumentParser(description="Serves an exported SavedModel with TensorFlow Serving's REST API.")
    parser.add_argument("path", help="folder from tfsac export")
    parser.add_argument("port", type=int, nargs="?", default=8501, help="0 for any free port")
    options = parser.parse_args()
    loaded = tf.saved_model.load(options.path)
    with ThreadingHTTPServer(("127.0.0.1", options.port), handler_of(dict(loaded.signatures))) as server:
        print(f"serving {', '.join(loaded.signatures)} at http://127.0.0.1:{server.server_port}{MODEL}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
