"""Batches: what came meanwhile goes together, nobody waits for a slow reader, and the last ones are still answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from shop import new_answering, request

from reticent.service.http.batching import Batcher, Overloaded, Stopping
from reticent.service.requests import Answered, KeyReused, Request


class Stub:
    """An answering service that waits until it is let go, and remembers what it was handed."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Semaphore(0)
        self.needs_maintenance = False
        self.maintained = 0
        self.threads: set[int] = set()

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        self.threads.add(threading.get_ident())
        self.go.acquire()
        self.batches.append([one.client for one in requests])
        return [KeyReused("no") if one.client == "bad" else Answered([one.client], 1, False) for one in requests]

    def wait_until_learned(self) -> None:
        """Nothing is learned here."""

    def maintain(self) -> None:
        self.maintained += 1
        self.needs_maintenance = False


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_came_meanwhile_is_the_next_batch() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub)
        first = asyncio.create_task(batcher.ask(request(client="a")))
        await settled()
        rest = [asyncio.create_task(batcher.ask(request(client=name))) for name in ("b", "bad", "c")]
        await settled()
        assert batcher.queued == 3
        stub.go.release()
        stub.go.release()
        assert (await first).labels == ["a"]
        results = await asyncio.gather(*rest, return_exceptions=True)
        assert [one.labels for one in results if isinstance(one, Answered)] == [["b"], ["c"]]
        assert isinstance(results[1], KeyReused)
        assert stub.batches == [["a"], ["b", "bad", "c"]]
        await batcher.close()
        assert len(stub.threads) == 1

    asyncio.run(run())


def test_batches_have_a_largest_size_and_keep_the_order() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub, max_rows=5)
        sizes = {"a": 1, "b": 3, "c": 2, "d": 3, "e": 9, "f": 1}
        asked = []
        for name, rows in sizes.items():
            asked.append(asyncio.create_task(batcher.ask(request(rows, client=name))))
            await settled()
        for _ in range(9):
            stub.go.release()
        await asyncio.gather(*asked)
        assert stub.batches == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]
        await batcher.close()

    asyncio.run(run())


def test_clients_take_turns_and_none_takes_all_the_room() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub, max_rows=10, waiting_rows=80)
        asked = [asyncio.create_task(batcher.ask(request(client="first")))]
        await settled()
        asked += [asyncio.create_task(batcher.ask(request(10, client="much"))) for _ in range(4)]
        await settled()
        with pytest.raises(Overloaded):
            await batcher.ask(request(10, client="much"))
        asked += [asyncio.create_task(batcher.ask(request(2, client=name))) for name in ("a", "b", "a")]
        await settled()
        for _ in range(9):
            stub.go.release()
        await asyncio.gather(*asked)
        assert stub.batches == [["first"], ["much"], ["a", "b"], ["much"], ["a"], *[["much"]] * 2]
        await batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize("limits", [{"waiting": 3}, {"waiting_rows": 30}])
def test_too_much_waiting_is_refused_and_what_waits_is_answered(limits: dict[str, int]) -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub, **limits)
        asked = []
        for name in "abcd":
            asked.append(asyncio.create_task(batcher.ask(request(10, client=name))))
            await settled()
        with pytest.raises(Overloaded, match="3 requests are waiting"):
            await batcher.ask(request(10, client="e"))
        for _ in range(2):
            stub.go.release()
        assert [one.labels for one in await asyncio.gather(*asked)] == [["a"], ["b"], ["c"], ["d"]]
        stub.go.release()
        assert (await batcher.ask(request(10, client="e"))).labels == ["e"]
        await batcher.close()

    asyncio.run(run())


def test_who_goes_away_is_forgotten_and_holds_nobody_up() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub)
        tasks = {}
        for name in "abc":
            tasks[name] = asyncio.create_task(batcher.ask(request(client=name)))
            await settled()
        tasks["a"].cancel()  # is being answered
        tasks["b"].cancel()  # waits
        await settled()
        stub.go.release()
        stub.go.release()
        assert (await tasks["c"]).labels == ["c"]
        assert stub.batches == [["a"], ["c"]]
        await batcher.close()

    asyncio.run(run())


def test_closing_answers_what_was_taken_and_takes_no_more() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub, max_rows=1)
        asked = [asyncio.create_task(batcher.ask(request(client=name))) for name in "abc"]
        await settled()
        closing = asyncio.create_task(batcher.close())
        await settled()
        with pytest.raises(Stopping):
            await batcher.ask(request())
        assert not closing.done()
        for _ in asked:
            stub.go.release()
        await closing
        assert [one.labels for one in await asyncio.gather(*asked)] == [["a"], ["b"], ["c"]]

    asyncio.run(run())


def test_tidying_comes_after_the_answers() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub)
        stub.needs_maintenance = True
        stub.go.release()
        await batcher.ask(request())
        await batcher.close()
        assert (stub.maintained, stub.needs_maintenance) == (1, False)

    asyncio.run(run())


def test_a_answering_that_breaks_is_told_to_all_who_wait() -> None:
    class Broken(Stub):
        def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
            raise MemoryError

    async def run() -> None:
        batcher = Batcher(Broken())
        results = await asyncio.gather(*(batcher.ask(request()) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in results] == [MemoryError] * 3
        await batcher.close()

    asyncio.run(run())


def test_many_clients_at_once_on_a_real_answering(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", rows=1000)

    async def client(batcher: Batcher, name: str) -> int:
        return sum([len((await batcher.ask(request(2, key=str(one), client=name))).labels) for one in range(40)])

    async def run() -> list[int]:
        batcher = Batcher(answering)
        found = await asyncio.gather(*(client(batcher, f"c{one}") for one in range(16)))
        await batcher.close()
        return found

    assert asyncio.run(run()) == [80] * 16
    assert answering.clients() == {f"c{one}": 80 for one in range(16)}
    commits = len({row.time for row in answering.tail()})
    assert commits < 16 * 40
    assert answering.verify().counted == {1: 1280}
    answering.close()


def test_those_who_ask_again_at_once_come_together() -> None:
    """Else one that is a little sooner has a batch of its own, the others the next, and so on for ever."""

    async def run() -> None:
        stub = Stub()
        for _ in range(100):
            stub.go.release()
        batcher = Batcher(stub)

        async def caller(name: str) -> None:
            for _ in range(10):
                await batcher.ask(request(client=name))

        await asyncio.gather(*(caller(f"{one}") for one in range(20)))
        assert [len(one) for one in stub.batches] == [20] * 10
        await batcher.close()

    asyncio.run(run())


# ── labels, beside answers ────────────────────────────────────────────────────────────────────────────────────────


def test_one_who_sends_many_labels_delays_neither_answers_nor_the_labels_of_others() -> None:
    async def run() -> None:
        stub, done = Stub(), []
        batcher = Batcher(stub)

        def task(name: str) -> None:
            stub.go.acquire()
            done.append(name)

        flood = [asyncio.create_task(batcher.run(lambda: task("ann"), 1, "ann")) for _ in range(50)]
        await settled()
        other = asyncio.create_task(batcher.run(lambda: task("bob"), 1, "bob"))
        asked = asyncio.create_task(batcher.ask(request(client="eve")))
        await settled()
        for _ in range(4):
            stub.go.release()
        await asyncio.gather(other, asked)
        assert done.count("ann") <= 2
        for _ in range(50):
            stub.go.release()
        await asyncio.gather(*flood)
        assert not batcher._tasks
        await batcher.close()

    asyncio.run(run())


def test_nobody_may_fill_more_than_half_of_the_labels_that_wait() -> None:
    async def run() -> None:
        stub = Stub()
        batcher = Batcher(stub, waiting=8, waiting_rows=100)
        kept = [asyncio.create_task(batcher.run(stub.go.acquire, 1, "ann")) for _ in range(4)]
        await settled()
        with pytest.raises(Overloaded):
            await batcher.run(stub.go.acquire, 1, "ann")
        kept.append(asyncio.create_task(batcher.run(stub.go.acquire, 90, "bob")))  # one task may be large
        await settled()
        with pytest.raises(Overloaded):
            await batcher.run(stub.go.acquire, 10, "eve")
        for _ in kept:
            stub.go.release()
        await asyncio.gather(*kept)
        await batcher.close()

    asyncio.run(run())


def test_labels_that_wait_when_the_service_stops_are_refused() -> None:
    async def run() -> None:
        stub, done = Stub(), []
        batcher = Batcher(stub)
        stub.go.release()
        tasks = [asyncio.create_task(batcher.run(lambda: done.append(1), 1, "ann")) for _ in range(5)]
        await settled()
        await batcher.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(one is None or isinstance(one, Stopping) for one in results)
        assert len(done) == sum(one is None for one in results) < 5

    asyncio.run(run())
