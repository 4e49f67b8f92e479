"""ResidentPages: it releases pages that were read, and no content is lost."""

import mmap
from pathlib import Path

from wakeq.storage.state import environment as resident
from wakeq.storage.state.environment import ResidentPages, mapped_file_bytes

SIZE = 64 * 1024 * 1024


def test_released_pages_are_not_resident_and_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789abcdef" * (SIZE // 16))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = mapped_file_bytes()
        content = bytes(mapped)
        touched = mapped_file_bytes()

        ResidentPages(path).give_up()

        assert touched - before > 0.9 * SIZE
        assert mapped_file_bytes() - before < 0.1 * SIZE
        assert bytes(mapped) == content


def test_pages_are_released_only_at_a_check_above_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * SIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[::4096]
        touched = mapped_file_bytes()
        loose, tight = ResidentPages(path, bytes_max=2**50), ResidentPages(path, bytes_max=SIZE // 2)

        for _ in range(resident.CHECK_EVERY - 1):
            tight.used()
            loose.used()
        loose.used()
        assert mapped_file_bytes() > touched - SIZE // 2
        tight.used()

        assert mapped_file_bytes() < touched - SIZE // 2


def test_release_of_an_unmapped_or_missing_file_does_nothing(tmp_path: Path) -> None:
    ResidentPages(tmp_path / "none").give_up()
    (tmp_path / "file").write_bytes(b"x")

    ResidentPages(tmp_path / "file").give_up()
