"""The bits of a filter, as a Java broker works them out."""

from bolide.filter.bloom import BloomSize, bloom_positions, bloom_size, murmur3_low


def test_the_hash_is_murmur3_of_128_bits() -> None:
    known = {b"": 0, b"foo": -2129773440516405919, b"hello": -3758069500696749310}
    assert {text: murmur3_low(text) - (1 << 64) * (murmur3_low(text) >> 63) for text in known} == known


def test_the_size_is_that_of_a_java_broker_by_default() -> None:
    assert bloom_size(20, 32) == BloomSize(112, 3)
    assert bloom_size(1, 64) == BloomSize(616, 7)


def test_positions_lie_within_the_bits_and_differ_from_group_to_group() -> None:
    size = bloom_size(20, 32)
    seen = {tuple(bloom_positions(f"group-{i}#T", size)) for i in range(200)}
    assert len(seen) > 150
    assert all(0 <= position < size.bit_count for positions in seen for position in positions)
