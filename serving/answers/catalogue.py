"""The facts of the model that a client can ask for, as TensorFlow Serving and OpenAI's protocol give them."""

from google.protobuf import json_format

from serving import fields
from serving.errors import RequestError


class Catalogue:
    """The one model of a server.

    Args:
        model: a Model.
        limits: a Limits.
        is_ready: returns whether the model is warmed up.
    """

    def __init__(self, model, limits, is_ready):
        self._model, self._limits, self._is_ready = model, limits, is_ready

    @property
    def name(self):
        """The model's name."""
        return self._model.name

    def find(self, name, version=None):
        """Raises RequestError if the model has another name, or another version if one is given."""
        if name != self._model.name:
            reason = f"there is no model {fields.shown(name)}: the server has {self._model.name}"
            raise RequestError(404, reason, param="model")
        if version not in (None, self._model.version):
            reason = f"there is no version {fields.shown(version)} of {name}: the server has {self._model.version}"
            raise RequestError(404, reason)

    def check_name(self, request):
        """Raises RequestError if request["model"] is given and is not this model."""
        name = request.get("model", self._model.name)
        if not isinstance(name, str):
            raise RequestError(400, f"model must be a string, not {fields.shown(name)}", param="model")
        self.find(name)

    def models(self):
        """OpenAI's list of models."""
        return {"object": "list", "data": [self._about()]}

    def model(self, name):
        """OpenAI's facts about a model, with TensorFlow Serving's."""
        self.find(name)
        return self._about() | self._status()

    def version(self, name, version):
        """TensorFlow Serving's facts about a version."""
        self.find(name, version)
        return self._status()

    def metadata(self, name, version=None):
        """The signatures, as TensorFlow Serving writes them."""
        self.find(name, version)
        signatures = {
            name: json_format.MessageToDict(
                definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            for name, definition in self._model.definitions.items()
        }
        return {
            "model_spec": {"name": self._model.name, "signature_name": "", "version": self._model.version},
            "metadata": {"signature_def": {"signature_def": signatures}},
        }

    def no_chat(self):
        """Why there is no route for chats."""
        able = "continues texts at /v1/completions" if self._model.continues else f"has {', '.join(self._model.routes)}"
        raise RequestError(404, f"the model was not trained to chat: it {able}")

    def _about(self):
        model = self._model
        longest = {"max_model_len": self._limits.text_tokens} if model.continues else {}
        return {"id": model.name, "object": "model", "created": model.created, "owned_by": "txl_tf"} | longest

    def _status(self):
        state = "AVAILABLE" if self._is_ready() else "LOADING"
        status = {"error_code": "OK", "error_message": ""}
        return {"model_version_status": [{"version": self._model.version, "state": state, "status": status}]}
