"""The HTTP client: a credential signs its requests, and one that is refused is signed and sent again once."""

from typing import Any

import httpx2

from relay.runners.messages.credentials import REFUSED, Credential


class SigningClient(httpx2.Client):
    """Mutable, as every client; without a credential it adds nothing."""

    def __init__(self, credential: Credential | None, **given: Any) -> None:
        super().__init__(**given)
        self._credential = credential

    def send(self, request: httpx2.Request, **given: Any) -> httpx2.Response:
        """Sign a request and send it; where it is refused, renew the credential and send it once more.

        A second refusal is returned.

        Raises:
            CredentialError: There is no credential.
        """
        if self._credential is None:
            return super().send(request, **given)
        used = self._credential.sign(request)
        response = super().send(request, **given)
        if response.status_code not in REFUSED:
            return response
        try:
            if not self._credential.renew(used):
                return response
        except BaseException:
            response.close()
            raise
        response.close()
        self._credential.sign(request)
        return super().send(request, **given)
