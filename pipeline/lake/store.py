"""An object store, or any file system that fsspec opens, as the place of a lake.

Credentials are not passed: each file system finds them where its programs usually do, and fsspec reads its own settings
(FSSPEC_S3_ENDPOINT_URL and such).  Object stores have no rename, and show an object when it is whole; file systems
over the network show a file while it is being written, and have a rename.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from wakeq.pipeline.lake.place import DATA_FILE
from wakeq.protocol.errors import BadSettings, NotInstalled, StorageError

# What has to be installed for a scheme.
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
ADVICE = {
    "s3": "credentials come from AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of this "
    "machine; AWS_ENDPOINT_URL names a store other than that of AWS",
    "gs": "credentials come from GOOGLE_APPLICATION_CREDENTIALS, or a service account of this machine",
    "abfs": "credentials come from AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or a service principal",
    "hdfs": "it needs Java and the libraries of Hadoop: set JAVA_HOME, HADOOP_HOME and CLASSPATH",
}
# File systems with a rename, and without a way to create a file exclusively; all others are taken for object stores.
RENAMING = ("hdfs", "webhdfs", "sftp", "ssh", "smb", "dbfs")


class Store:
    """The files below an address."""

    def __init__(self, address: str, url: str) -> None:
        # As the user wrote it.
        self.address = address
        self._scheme = url.partition("://")[0]
        self._renames = self._scheme in RENAMING
        # The file system of fsspec, and the path of the place in it.
        self._files, self._root = self._open(url)

    def _open(self, url: str) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise NotInstalled("not installed here: fsspec; pip install 'wakeq[lake]'") from None
        try:
            with self._told():
                # A cached listing would hide the notes of other processes.
                files, root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            package = PACKAGES.get(self._scheme)
            advice = f"pip install {package}" if package else str(error)
            scheme = self.address.partition("://")[0]
            raise NotInstalled(f"{self.address}: nothing installed here opens {scheme}://; {advice}") from None
        return files, root.rstrip("/")

    @property
    def filesystem(self) -> Any:
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(self._files))

    def names(self, folder: str) -> list[str]:
        with self._told():
            self._files.invalidate_cache()
            try:
                found = self._files.ls(f"{self._root}/{folder}", detail=False)
            except FileNotFoundError:
                return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def data_files(self) -> list[str]:
        with self._told():
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._root)
            except FileNotFoundError:
                return []
        # The paths that come back may lack the root's slash.
        root = self._root.strip("/")
        names = (path.strip("/").removeprefix(root).lstrip("/") for path in found)
        return sorted(name for name in names if DATA_FILE.fullmatch(name))

    def path_of(self, name: str) -> str:
        return f"{self._root}/{name}"

    def address_of(self, name: str) -> str:
        address = self.address.rstrip("/")
        # Of a root, such as hdfs:///, the slashes of the scheme are gone, too.
        return f"{address}///{name}" if address.endswith(":") else f"{address}/{name}"

    def read(self, name: str) -> bytes:
        with self._told(FileNotFoundError):
            content: bytes = self._files.cat_file(self.path_of(name))
            return content

    def create(self, name: str, data: bytes) -> bool:
        """Create a file unless it exists.

        The file itself decides: a store refuses a creation also if it was repeated because its first answer was lost.
        """
        try:
            self._create(name, data)
        except Exception as error:
            try:
                return self.read(name) == data
            except FileNotFoundError:
                if isinstance(error, FileExistsError):
                    return False
                with self._told():
                    raise error from None
        return True

    def _create(self, name: str, data: bytes) -> None:
        if not self._renames:
            self._files.pipe_file(self.path_of(name), data, mode="create")
            return
        # A rename may replace a file (that of pyarrow's HDFS does), so another archive may still create it in between.
        unfinished = f"{name}.{uuid4().hex}"
        self.write(unfinished, data)
        if self._files.exists(self.path_of(name)):
            self.remove([unfinished])
            raise FileExistsError(name)
        self._files.mv(self.path_of(unfinished), self.path_of(name))

    def write(self, name: str, data: bytes) -> None:
        with self._told():
            if self._renames:
                self._files.makedirs(self.path_of(name).rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(self.path_of(name), data)

    def move(self, source: str, target: str, data: bytes | None = None) -> None:
        if self._renames:
            with self._told():
                self._files.makedirs(self.path_of(target).rpartition("/")[0], exist_ok=True)
                try:
                    self._files.mv(self.path_of(source), self.path_of(target))
                except Exception:
                    # Another archive was faster.
                    if source.rpartition("/")[2] in self.names(source.rpartition("/")[0]):
                        raise
            return
        try:
            # Some stores copy later than they say, so the content is written again.
            self.write(target, self.read(source) if data is None else data)
        except FileNotFoundError:
            # Another archive has moved it.
            return
        self.remove([source])

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self._told(), suppress(FileNotFoundError):
                self._files.rm_file(self.path_of(name))

    def refuses_second(self, name: str) -> bool:
        if self._renames:
            return False
        try:
            self._create(name, self.read(name))
        except Exception:
            return True
        return False

    @contextmanager
    def _told(self, *passed: type[Exception]) -> Iterator[None]:
        """Turn what the libraries of a store raise, each its own, into one line."""
        try:
            yield
        except Exception as error:
            if isinstance(error, (*passed, ImportError, StorageError)):
                raise
            if isinstance(error, FileNotFoundError):
                raise StorageError(f"{self.address}: its bucket or container does not exist; create it") from None
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            if isinstance(error, ValueError) and "rotocol not known" in words:
                raise BadSettings(f"{self.address}: nothing opens {self._scheme}://; give a path or s3://...") from None
            hint = f"; {ADVICE[self._scheme]}" if self._scheme in ADVICE else ""
            raise StorageError(f"{self.address}: cannot be read or written: {words}{hint}") from None
