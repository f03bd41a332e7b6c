"""The hand-written all-reduces give the sum, for any number of ranks and any size, also sizes that do not divide."""

import threading

import pytest
import torch
import torch.distributed as dist

from labkit.engine.by_hand import AVERAGES, gather_all_reduce, ring_all_reduce, tree_all_reduce


def on_ranks(n: int, work) -> list:
    """`work(group, rank)` on n gloo ranks in threads of this process. Returns what each gives back."""
    store = dist.HashStore()
    results, errors = [None] * n, []

    def live(rank: int) -> None:
        try:
            results[rank] = work(dist.ProcessGroupGloo(store, rank, n), rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=live, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors, errors
    return results


@pytest.mark.parametrize("size", [1, 5, 12, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("all_reduce", [ring_all_reduce, tree_all_reduce, gather_all_reduce])
def test_every_rank_ends_with_the_sum(all_reduce, n, size):
    def work(group, rank):
        tensor = torch.arange(size, dtype=torch.float64) + 100 * rank
        all_reduce(tensor, group)
        return tensor

    expected = n * torch.arange(size, dtype=torch.float64) + 100 * n * (n - 1) / 2
    for result in on_ranks(n, work):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


def test_all_ways_to_average_are_known():
    assert set(AVERAGES) == {"naive", "ring", "tree", "gather", "off"}
