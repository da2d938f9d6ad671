"""One connection of the asynchronous client: h11 speaks HTTP, asyncio carries it."""

from __future__ import annotations

import asyncio

from reticent.service.client_messages import Question, Reply


class Connection:
    """A connection, for one request at a time.

    Parameters
    ----------
    reader, writer : StreamReader and StreamWriter
        What carries it.
    host : str
        The host and the port, for the header.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        import h11

        self._reader, self._writer, self._host = reader, writer, host
        self._state = h11.Connection(our_role=h11.CLIENT)

    async def send(self, question: Question) -> Reply:
        """Send a request, and return the response."""
        import h11

        headers = {**question.headers, "Host": self._host, "Content-Length": str(len(question.body))}
        request = h11.Request(method=question.method, target=question.path, headers=list(headers.items()))
        events = (request, h11.Data(data=question.body), h11.EndOfMessage())
        self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
        await self._writer.drain()
        status, found, parts = 0, {}, []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(1 << 16)
                if not data and self._state.their_state is h11.SEND_RESPONSE:
                    raise ConnectionResetError("the connection was closed")
                self._state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                found = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return Reply(status, found, b"".join(parts))
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the connection was closed")

    def usable(self) -> bool:
        """Whether another request can be sent; if so, get ready for it."""
        import h11

        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        return True

    async def close(self) -> None:
        """Close it."""
        self._writer.close()
