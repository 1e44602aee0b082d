"""How messages are kept. Each field names its RocketMQ key, so a Java broker.conf still works."""

from dataclasses import dataclass
from pathlib import Path

from bolide.errors import ConfigError
from bolide.kernel.plain_records import WHOLE_CHECKED
from bolide.settings import conf

PAGE_SIZE = 4096
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIMER_STEPS_MS = (100, 200, 500, 1000)
ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Frozen and checked when built; the defaults are RocketMQ's."""

    root: Path = conf("storePathRootDir", Path.home() / "store")
    commitlog_path: str = conf("storePathCommitLog", "")
    store_type: str = conf("storeType", "default")
    segment_size: int = conf("mappedFileSizeCommitLog", 1 << 30)
    queue_file_size: int = conf("mappedFileSizeConsumeQueue", 6_000_000)
    extension_file_size: int = conf("mappedFileSizeConsumeQueueExt", 48 << 20)
    body_size_max: int = conf("maxMessageSize", 4 << 20)

    flush_mode: str = conf("flushDiskType", ASYNC_FLUSH)
    flush_interval_ms: int = conf("flushIntervalCommitLog", 500)
    flush_pages_min: int = conf("flushCommitLogLeastPages", 4)
    flush_thorough_interval_ms: int = conf("flushCommitLogThoroughInterval", 10_000)
    sync_flush_timeout_ms: int = conf("syncFlushTimeout", 5000)
    queue_flush_interval_ms: int = conf("flushIntervalConsumeQueue", 1000)
    queue_flush_pages_min: int = conf("flushConsumeQueueLeastPages", 2)
    queue_flush_thorough_interval_ms: int = conf("flushConsumeQueueThoroughInterval", 60_000)

    pool_enabled: bool = conf("transientStorePoolEnable", False)
    pool_buffers_max: int = conf("transientStorePoolSize", 5)
    commit_interval_ms: int = conf("commitIntervalCommitLog", 200)
    commit_pages_min: int = conf("commitCommitLogLeastPages", 4)

    index_enabled: bool = conf("messageIndexEnable", True)
    # RocketMQ's default is false: after a crash the keys of older log files are gone. Ours costs a longer recovery.
    index_safe: bool = conf("messageIndexSafe", True)
    index_slots: int = conf("maxHashSlotNum", 5_000_000)
    index_entries_max: int = conf("maxIndexNum", 20_000_000)
    query_count_max: int = conf("maxMsgsNumBatch", 64)
    crc_checked: bool = conf("checkCRCOnRecover", True)
    sealed: bool = conf("enabledAppendPropCRC", False)  # each record ends in a checksum of all of it
    seal_checked: bool = conf("forceVerifyPropCRC", False)  # and recovery takes no other

    near_size_max: int = conf("maxTransferBytesOnMessageInMemory", 262_144)
    near_count_max: int = conf("maxTransferCountOnMessageInMemory", 32)
    far_size_max: int = conf("maxTransferBytesOnMessageInDisk", 65_536)
    far_count_max: int = conf("maxTransferCountOnMessageInDisk", 8)
    near_percent_of_memory: int = conf("accessMessageInMemoryMaxRatio", 40)
    scan_size_max: int = conf("maxFilterMessageSize", 16_000)

    delete_hours: str = conf("deleteWhen", "04")
    keep_hours: int = conf("fileReservedTime", 72)
    delete_count_max: int = conf("deleteFileBatchMax", 10)
    clean_interval_ms: int = conf("cleanResourceInterval", 10_000)
    clean_forcibly: bool = conf("cleanFileForciblyEnable", True)
    disk_percent_max: int = conf("diskMaxUsedSpaceRatio", 75)
    disk_percent_forcibly: int = conf("diskSpaceCleanForciblyRatio", 85)
    disk_percent_full: int = conf("diskSpaceWarningLevelRatio", 90)
    log_size_max: int = conf("bolideLogSizeMax", 0)  # our own: the oldest segments go beyond this many bytes; 0 = never

    busy_timeout_ms: int = conf("osPageCacheBusyTimeOutMills", 1000)
    role: str = conf("brokerRole", "ASYNC_MASTER")
    delay_levels: str = conf("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    delay_save_interval_ms: int = conf("flushDelayOffsetInterval", 10_000)
    timer_enabled: bool = conf("timerWheelEnable", True)
    timer_file_size: int = conf("mappedFileSizeTimerLog", 100 << 20)
    timer_step_ms: int = conf("timerPrecisionMs", 1_000)
    timer_delay_max_s: int = conf("timerMaxDelaySec", 259_200)
    timer_roll_steps: int = conf("timerRollWindowSlot", 172_800)
    timer_slot_count_max: int = conf("timerCongestNumEachSlot", 0x7FFF_FFFF)
    timer_save_interval_ms: int = conf("timerFlushIntervalMs", 1_000)
    timer_files_nothing: bool = conf("timerStopEnqueue", False)
    timer_delivers_nothing: bool = conf("timerStopDequeue", False)
    recall_names_topic: bool = conf("appendTopicForTimerDeleteKey", False)
    lmq_enabled: bool = conf("enableLmq", False)
    dledger_enabled: bool = conf("enableDLegerCommitLog", False)
    open_files_max: int = conf("bolideOpenFilesMax", 16_384)  # our own: mapped files kept open at a time

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_refused(self)
        if self.flush_mode not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise ConfigError("flushDiskType", self.flush_mode, f"must be {ASYNC_FLUSH} or {SYNC_FLUSH}")
        if not (10 <= self.disk_percent_max <= 100):
            raise ConfigError("diskMaxUsedSpaceRatio", self.disk_percent_max, "must be 10 to 100 percent")
        for part in self.delete_hours.split(";"):
            if not part.strip().isdigit() or int(part) > 23:
                raise ConfigError("deleteWhen", self.delete_hours, "must be hours 00 to 23, separated by ;")
        delays_ms_of(self.delay_levels)
        if self.timer_step_ms not in TIMER_STEPS_MS:
            raise ConfigError("timerPrecisionMs", self.timer_step_ms, f"must be one of {TIMER_STEPS_MS}")
        if self.timer_file_size < 2 * PAGE_SIZE:
            raise ConfigError("mappedFileSizeTimerLog", self.timer_file_size, f"must be {2 * PAGE_SIZE} or more")

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
    def log_directory(self) -> Path:
        return self.log_directories[0]

    @property
    def queue_file_bytes(self) -> int:
        """The size of a queue file: what is configured, rounded up to whole entries."""
        return -(-self.queue_file_size // 20) * 20


def _check_sizes(config: StoreConfig) -> None:
    if config.segment_size <= 0 or config.segment_size % PAGE_SIZE:
        raise ConfigError("mappedFileSizeCommitLog", config.segment_size, f"must be a multiple of {PAGE_SIZE}")
    if config.queue_file_size < 20:
        raise ConfigError("mappedFileSizeConsumeQueue", config.queue_file_size, "must hold at least one entry (20)")
    if config.body_size_max <= 0:
        raise ConfigError("maxMessageSize", config.body_size_max, "must be more than 0")
    if config.index_slots <= 0 or not 2 <= config.index_entries_max < 1 << 31:
        raise ConfigError("maxIndexNum", config.index_entries_max, "must be 2 to 2147483647, with slots beside it")


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
    delays = []
    for word in levels.split():
        if word[-1] not in _UNITS_MS or not word[:-1].isdigit():
            raise ConfigError("messageDelayLevel", levels, f"{word!r} is no number with a unit s, m, h or d")
        delays.append(int(word[:-1]) * _UNITS_MS[word[-1]])
    return tuple(delays)
