"""How messages are kept. Each field names its RocketMQ key, so a Java broker.conf still works."""

from dataclasses import dataclass
from pathlib import Path

from bolide.errors import ConfigError
from bolide.kernel.layout import WHOLE_CHECKED
from bolide.settings import INT32_MAX, INT64_MAX, PERCENTS, OneOf, Range, check_bounds, conf

PAGE_SIZE = 4096
BODY_SIZE_LOW = 4_096  # what the broker writes for itself (pops, decided transactions) must fit as well
BODY_SIZE_HIGH = 192 << 20  # with its properties it fits the largest frame there is
_FILE_SIZE_MAX = (1 << 31) - PAGE_SIZE  # positions in a file are 32 bits in RocketMQ
_PAGES = Range(0, _FILE_SIZE_MAX // PAGE_SIZE)
_ANSWER_SIZES = Range(1, 15 << 20, "clients take frames of 16 MiB")
_FULLNESS = Range(10, 100, "percent")
_DELAY_S_MAX = 3_650 * 86_400
_LEVELS_MAX = 256
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIMER_STEPS_MS = (100, 200, 500, 1000)
ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
ASYNC_MASTER = "ASYNC_MASTER"
SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Frozen and checked when built; the defaults are RocketMQ's."""

    root: Path = conf("storePathRootDir", Path.home() / "store")
    commitlog_path: str = conf("storePathCommitLog", "")
    store_type: str = conf("storeType", "default")
    segment_size: int = conf("mappedFileSizeCommitLog", 1 << 30, Range(PAGE_SIZE, _FILE_SIZE_MAX))
    queue_file_size: int = conf("mappedFileSizeConsumeQueue", 6_000_000, Range(20, _FILE_SIZE_MAX, "an entry takes 20"))
    extension_file_size: int = conf("mappedFileSizeConsumeQueueExt", 48 << 20, Range(1_024, _FILE_SIZE_MAX))
    body_size_max: int = conf("maxMessageSize", 4 << 20, Range(BODY_SIZE_LOW, BODY_SIZE_HIGH))

    flush_mode: str = conf("flushDiskType", ASYNC_FLUSH, OneOf((ASYNC_FLUSH, SYNC_FLUSH)))
    flush_interval_ms: int = conf("flushIntervalCommitLog", 500, Range(1, 600_000))
    flush_pages_min: int = conf("flushCommitLogLeastPages", 4, _PAGES)
    flush_thorough_interval_ms: int = conf("flushCommitLogThoroughInterval", 10_000, Range(1, 3_600_000))
    sync_flush_timeout_ms: int = conf("syncFlushTimeout", 5000, Range(10, 600_000))
    queue_flush_interval_ms: int = conf("flushIntervalConsumeQueue", 1000, Range(1, 600_000))
    queue_flush_pages_min: int = conf("flushConsumeQueueLeastPages", 2, _PAGES)
    queue_flush_thorough_interval_ms: int = conf("flushConsumeQueueThoroughInterval", 60_000, Range(1, 3_600_000))

    pool_enabled: bool = conf("transientStorePoolEnable", False)
    pool_buffers_max: int = conf("transientStorePoolSize", 5, Range(1, 1_024))
    commit_interval_ms: int = conf("commitIntervalCommitLog", 200, Range(1, 60_000))
    commit_pages_min: int = conf("commitCommitLogLeastPages", 4, _PAGES)

    index_enabled: bool = conf("messageIndexEnable", True)
    # RocketMQ's default is false: after a crash the keys of older log files are gone. Ours costs a longer recovery.
    index_safe: bool = conf("messageIndexSafe", True)
    index_slots: int = conf("maxHashSlotNum", 5_000_000, Range(1, 100_000_000))
    index_entries_max: int = conf("maxIndexNum", 20_000_000, Range(2, 100_000_000))
    query_count_max: int = conf("maxMsgsNumBatch", 64, Range(1, 4_096))
    crc_checked: bool = conf("checkCRCOnRecover", True)
    sealed: bool = conf("enabledAppendPropCRC", False)  # each record ends in a checksum of all of it
    seal_checked: bool = conf("forceVerifyPropCRC", False)  # and recovery takes no other

    near_size_max: int = conf("maxTransferBytesOnMessageInMemory", 262_144, _ANSWER_SIZES)
    near_count_max: int = conf("maxTransferCountOnMessageInMemory", 32, Range(1, 65_536))
    far_size_max: int = conf("maxTransferBytesOnMessageInDisk", 65_536, _ANSWER_SIZES)
    far_count_max: int = conf("maxTransferCountOnMessageInDisk", 8, Range(1, 65_536))
    near_percent_of_memory: int = conf("accessMessageInMemoryMaxRatio", 40, PERCENTS)
    scan_size_max: int = conf("maxFilterMessageSize", 16_000, Range(20, 4 << 20))

    delete_hours: str = conf("deleteWhen", "04")
    keep_hours: int = conf("fileReservedTime", 72, Range(0, 1_000_000, "hours"))
    delete_count_max: int = conf("deleteFileBatchMax", 10, Range(1, 10_000))
    clean_interval_ms: int = conf("cleanResourceInterval", 10_000, Range(100, 3_600_000))
    clean_forcibly: bool = conf("cleanFileForciblyEnable", True)
    disk_percent_max: int = conf("diskMaxUsedSpaceRatio", 75, _FULLNESS)
    disk_percent_forcibly: int = conf("diskSpaceCleanForciblyRatio", 85, _FULLNESS)
    disk_percent_full: int = conf("diskSpaceWarningLevelRatio", 90, _FULLNESS)
    # our own: the oldest segments go beyond this many bytes; 0 = never
    log_size_max: int = conf("bolideLogSizeMax", 0, Range(0, INT64_MAX))

    busy_timeout_ms: int = conf("osPageCacheBusyTimeOutMills", 1000, Range(10, 600_000))
    role: str = conf("brokerRole", ASYNC_MASTER, OneOf((ASYNC_MASTER, "SYNC_MASTER", SLAVE)))
    delay_levels: str = conf("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    delay_save_interval_ms: int = conf("flushDelayOffsetInterval", 10_000, Range(1, 3_600_000))
    timer_enabled: bool = conf("timerWheelEnable", True)
    timer_file_size: int = conf("mappedFileSizeTimerLog", 100 << 20, Range(2 * PAGE_SIZE, _FILE_SIZE_MAX))
    timer_step_ms: int = conf("timerPrecisionMs", 1_000, OneOf(TIMER_STEPS_MS))
    timer_delay_max_s: int = conf("timerMaxDelaySec", 259_200, Range(1, _DELAY_S_MAX))
    timer_roll_steps: int = conf("timerRollWindowSlot", 172_800, Range(2, INT32_MAX))
    timer_slot_count_max: int = conf("timerCongestNumEachSlot", 0x7FFF_FFFF, Range(1, INT32_MAX))
    timer_save_interval_ms: int = conf("timerFlushIntervalMs", 1_000, Range(1, 3_600_000))
    timer_files_nothing: bool = conf("timerStopEnqueue", False)
    timer_delivers_nothing: bool = conf("timerStopDequeue", False)
    recall_names_topic: bool = conf("appendTopicForTimerDeleteKey", False)
    lmq_enabled: bool = conf("enableLmq", False)
    dledger_enabled: bool = conf("enableDLegerCommitLog", False)
    # our own: mapped files kept open at a time
    open_files_max: int = conf("bolideOpenFilesMax", 16_384, Range(16, 1_000_000))

    def __post_init__(self) -> None:
        check_bounds(self)
        _check_sizes(self)
        _check_refused(self)
        hours = [part.strip() for part in self.delete_hours.split(";")]
        if not all(hour.isascii() and hour.isdigit() and len(hour) < 3 and int(hour) < 24 for hour in hours):
            raise ConfigError("deleteWhen", self.delete_hours, "must be hours 00 to 23, separated by ;")
        delays_ms_of(self.delay_levels)

    @property
    def is_sync(self) -> bool:
        return self.flush_mode == SYNC_FLUSH

    @property
    def check_on_recover(self) -> int:
        """How much of a record recovery checks, as the kernel counts it."""
        return WHOLE_CHECKED if self.seal_checked else int(self.crc_checked)

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """Where the log's files are: one directory, or several in the order in which they take turns."""
        paths = [path.strip() for path in self.commitlog_path.split(",") if path.strip()]
        return tuple(Path(path) for path in sorted(set(paths))) or (self.root / "commitlog",)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Those that are made before anything is written."""
        return (self.root, *self.log_directories, *([self.root / "index"] if self.index_enabled else []))

    @property
    def log_directory(self) -> Path:
        return self.log_directories[0]

    @property
    def queue_file_bytes(self) -> int:
        """The size of a queue file: what is configured, rounded up to whole entries."""
        return -(-self.queue_file_size // 20) * 20


def _check_sizes(config: StoreConfig) -> None:
    if config.segment_size % PAGE_SIZE:
        raise ConfigError("mappedFileSizeCommitLog", config.segment_size, f"must be a multiple of {PAGE_SIZE}")
    index_size = 40 + 4 * config.index_slots + 20 * config.index_entries_max
    if index_size > _FILE_SIZE_MAX:
        why = f"an index file would have {index_size} bytes, of at most {_FILE_SIZE_MAX}: 4 a slot and 20 an entry"
        raise ConfigError("maxIndexNum", config.index_entries_max, why)


def _check_refused(config: StoreConfig) -> None:
    if config.store_type != "default":
        raise ConfigError("storeType", config.store_type, "only the file store (default) is kept here, not RocksDB")
    if config.lmq_enabled:
        raise ConfigError("enableLmq", True, "light message queues (LMQ) are not kept here")
    if config.dledger_enabled:
        raise ConfigError("enableDLegerCommitLog", True, "a DLedger log is another format, which is not kept here")
    if config.seal_checked and not config.sealed:
        raise ConfigError(
            "forceVerifyPropCRC", True, "needs enabledAppendPropCRC=true, or what is written now would be lost later"
        )


def delays_ms_of(levels: str) -> tuple[int, ...]:
    """`1s 5s …` → milliseconds by level, the first level at index 0."""
    words = levels.split()
    if not 1 <= len(words) <= _LEVELS_MAX:
        raise ConfigError("messageDelayLevel", levels, f"must have 1 to {_LEVELS_MAX} levels")
    delays = []
    for word in words:
        digits, unit_ms = word[:-1], _UNITS_MS.get(word[-1])
        if unit_ms is None or not (digits.isascii() and digits.isdigit()):
            raise ConfigError("messageDelayLevel", levels, f"{word!r} is no number with a unit s, m, h or d")
        if len(digits) > 12 or int(digits) * unit_ms > _DELAY_S_MAX * 1000:
            raise ConfigError("messageDelayLevel", levels, f"{word!r} is longer than ten years")
        delays.append(int(digits) * unit_ms)
    return tuple(delays)
