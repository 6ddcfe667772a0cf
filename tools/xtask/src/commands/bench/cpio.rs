//! Archives that Linux unpacks at its start: the format newc of cpio.

/// A file of an archive.
#[derive(Debug, Clone, Copy, Default)]
pub struct Entry<'a> {
    pub name: &'a str,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    pub contents: &'a [u8],
    /// Of a device: major and minor number.
    pub device: (u32, u32),
}

/// The archive with these entries. A folder precedes its files.
pub fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries {
        append(&mut archive, entry);
    }
    append(&mut archive, &Entry { name: "TRAILER!!!", ..Entry::default() });
    archive
}

fn append(archive: &mut Vec<u8>, entry: &Entry<'_>) {
    let Entry { name, mode, contents, device: (major, minor) } = *entry;
    let [name_bytes, bytes] = [name.len() + 1, contents.len()].map(|length| {
        // The format's limit. Larger files do not occur.
        u32::try_from(length).expect("less than 4 GiB")
    });
    // Inode, mode, user, group, links, time, length, device (2), number of a device (2), length of
    // the name, checksum. The inode does not matter to a file with a single link.
    let fields = [1, mode, 0, 0, 1, 0, bytes, 0, 0, major, minor, name_bytes, 0];
    archive.extend(b"070701");
    archive.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    archive.extend(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend(contents);
    pad(archive);
}

/// Header with name, and contents, each end at a multiple of four bytes.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_entries_and_the_trailer() {
        let file = Entry { name: "init", mode: 0o100_755, contents: b"hello", ..Entry::default() };
        let device = Entry { name: "tty", mode: 0o20_600, device: (5, 1), ..Entry::default() };
        let archive = archive(&[file, device]);
        let mut expected = String::new();
        for (fields, name_and_contents) in [
            // inode    mode    ..  links   time    length  ..  major   minor   name    check
            (
                "00000001000081ed0000000000000000000000010000000000000005\
              000000000000000000000000000000000000000500000000",
                "init\0\0hello\0\0\0",
            ),
            (
                "00000001000021800000000000000000000000010000000000000000\
              000000000000000000000005000000010000000400000000",
                "tty\0\0\0",
            ),
            (
                "00000001000000000000000000000000000000010000000000000000\
              000000000000000000000000000000000000000b00000000",
                "TRAILER!!!\0\0\0\0",
            ),
        ] {
            expected += &format!("070701{fields}{name_and_contents}");
        }
        assert_eq!(String::from_utf8(archive).unwrap(), expected);
        assert!(expected.len().is_multiple_of(4));
    }
}
