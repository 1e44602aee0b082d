"""Which task reads what: a pure function from ranges of queues to lists of them, one list a task.

A task costs tens of milliseconds whatever it reads, so a small micro-batch is one task over all its queues. A large one
gets a task for each queue, and a queue is split where it alone has too much for one task, or where the user asks for
more tasks (`minPartitions`). Parts of one queue stay in order within a task, never across tasks.
"""

from collections.abc import Sequence

from bolide.spark.source.offsets import Range

SMALL_COUNT = 20_000  # rows that one task reads faster than two
LARGE_COUNT = 1_000_000  # rows after which a further task pays even on few cores


def plan(ranges: Sequence[Range], partitions_min: int = 0) -> list[list[Range]]:
    """The tasks; none for no rows."""
    ranges = [each for each in ranges if each.row_count > 0]
    total = sum(each.row_count for each in ranges)
    if not total:
        return []
    wanted = max(min(len(ranges), -(-total // SMALL_COUNT)), -(-total // LARGE_COUNT), min(partitions_min, total))
    if wanted >= len(ranges):
        pieces = [piece for each in ranges for piece in _split(each, round(wanted * each.row_count / total))]
        pieces = _until(pieces, wanted)
        return [[piece] for piece in pieces]
    return _packed(ranges, wanted)


def _split(whole: Range, count: int) -> list[Range]:
    count = max(1, min(count, whole.row_count))
    bounds = [whole.first + whole.row_count * i // count for i in range(count + 1)]
    return [Range(whole.queue, bounds[i], bounds[i + 1]) for i in range(count)]


def _until(pieces: list[Range], wanted: int) -> list[Range]:
    """Rounding may have left too few pieces: halve the largest until there are enough."""
    pieces = list(pieces)
    while len(pieces) < wanted:
        largest = max(range(len(pieces)), key=lambda i: pieces[i].row_count)
        if pieces[largest].row_count < 2:
            break
        pieces[largest : largest + 1] = _split(pieces[largest], 2)
    return pieces


def _packed(ranges: Sequence[Range], wanted: int) -> list[list[Range]]:
    """Few tasks over many queues, each with about the same number of rows; the largest are placed first."""
    tasks: list[list[Range]] = [[] for _ in range(wanted)]
    sizes = [0] * wanted
    for each in sorted(ranges, key=lambda one: (-one.row_count, one.queue)):
        lightest = sizes.index(min(sizes))
        tasks[lightest].append(each)
        sizes[lightest] += each.row_count
    return [sorted(task) for task in tasks if task]
