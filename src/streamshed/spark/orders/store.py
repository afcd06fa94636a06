"""Small files on any of Hadoop's file systems: where plans, books and journals outlive the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamshed.errors import InvalidArgument


class Store:
    """Small files on any of Hadoop's file systems, replaced whole and at once."""

    # Object stores show a new object only when it is complete, and have no rename worth the name.
    _CREATE_IS_ATOMIC = frozenset({"s3", "s3a", "s3n", "gs", "oss", "obs", "cosn", "r2"})

    def __init__(self, spark: SparkSession, folder: str, *, temporary: bool = False) -> None:
        """`temporary`: the folder is this process's own, and goes with it."""
        gateway: Any = spark.sparkContext._gateway
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop: Any = self._jvm.org.apache.hadoop.fs
        path = self._hadoop.Path(folder)
        self._fs: Any = self._hadoop.FileSystem.get(path.toUri(), self._conf)
        self.folder: str = self._fs.makeQualified(path).toString()
        self._scheme: str = self._fs.getUri().getScheme()
        self._local = Path(path.toUri().getPath()).absolute() if self._scheme == "file" else None
        self._temporary = temporary
        if temporary:
            atexit.register(self.discard)

    @property
    def is_local(self) -> bool:
        return self._local is not None

    def utf8(self, text: str) -> Any:
        """A string as Spark keeps it in rows."""
        return self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)

    def path(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        if self._local is not None:
            file = self._local / name
            return file.read_bytes() if file.exists() else None
        path = self._hadoop.Path(self.path(name))
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        if self._local is not None:
            # The driver's own disk: Hadoop's file system for it does not rename onto a file, and its
            # FileContext adds a checksum that is not replaced in the same step.
            self._local.mkdir(parents=True, exist_ok=True)
            fresh_file = self._local / f".{name}.new"
            fresh_file.write_bytes(data)
            os.replace(fresh_file, self._local / name)
            return
        target = self._hadoop.Path(self.path(name))
        if self._scheme in self._CREATE_IS_ATOMIC:
            self._put(target, data)
            return
        fresh = self._hadoop.Path(self.path(f".{name}.new"))
        self._put(fresh, data)
        rename: Any = self._hadoop.Options.Rename
        overwrite = self._gateway.new_array(rename, 1)
        overwrite[0] = rename.OVERWRITE
        self._hadoop.FileContext.getFileContext(target.toUri(), self._conf).rename(fresh, target, overwrite)

    def append(self, name: str, data: bytes, older: str, most: int) -> None:
        """Add to a file; one of more than `most` bytes takes the place of `older` first, and a new one begins."""
        if self._local is None:
            # Few file systems can append: the file is written anew.
            before = self.read(name) or b""
            if len(before) > most:
                self.write(older, before)
                before = b""
            self.write(name, before + data)
            return
        self._local.mkdir(parents=True, exist_ok=True)
        file = self._local / name
        if file.exists() and file.stat().st_size > most:
            os.replace(file, self._local / older)
        with file.open("ab") as end:
            end.write(data)

    def names(self) -> list[str]:
        """The files in the folder."""
        path = self._hadoop.Path(self.folder)
        if not self._fs.exists(path):
            return []
        return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(path))

    def remove(self, name: str) -> None:
        """Remove one file, if it is there."""
        if self._local is not None:
            (self._local / name).unlink(missing_ok=True)
        else:
            self._fs.delete(self._hadoop.Path(self.path(name)), False)

    def discard(self) -> None:
        """Remove the folder and what is in it, if it is a temporary one; quietly, for nobody needs it any more."""
        if self._temporary:
            atexit.unregister(self.discard)
            with contextlib.suppress(Exception):
                if self._local is not None:
                    shutil.rmtree(self._local, ignore_errors=True)
                else:
                    self._fs.delete(self._hadoop.Path(self.folder), True)

    def _put(self, path: Any, data: bytes) -> None:
        stream = self._fs.create(path, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()


_PROCESS = uuid.uuid4().hex[:8]


def control_store(spark: SparkSession, control: str | None) -> Store:
    """Where the control file goes: where the user says, else beside the checkpoints, else a temporary folder.

    What the user did not name is this process's own, and goes with it: two applications with one checkpoint
    location must never read each other's plans. What must outlive the driver is beside each checkpoint.
    """
    base = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if control is not None:
        folder = control
    elif base:
        folder = f"{base}/_streamshed/{spark.sparkContext.applicationId}-{_PROCESS}"
    else:
        folder = f"file://{tempfile.mkdtemp(prefix='streamshed-')}"
    try:
        return Store(spark, folder, temporary=control is None)
    except Exception as error:
        raise InvalidArgument(
            "the control folder cannot be used",
            got=f"{folder!r}: {error}",
            hint="is its file system known to Spark?",
        ) from error


def root_cause(error: Exception) -> str:
    """What Java said, if it was Java."""
    java = getattr(error, "java_exception", None)
    return java.toString() if java is not None else f"{type(error).__name__}: {error}"
