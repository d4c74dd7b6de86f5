"""The package openai asks the server."""

import pytest
import server

openai = pytest.importorskip("openai", reason="make test-clients has it")


def test_a_route_that_the_server_does_not_have_is_an_error_of_the_package(byte_export):
    with (
        server.running(byte_export) as address,
        openai.OpenAI(api_key="none", base_url=f"{address}/v1") as client,
        pytest.raises(openai.NotFoundError),
    ):
        client.chat.completions.create(model="a", messages=[{"role": "user", "content": "a"}])
